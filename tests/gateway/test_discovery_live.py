"""Servers that come and go while requests run: by a watched file, by registering, by DNS."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.gateway.door import CHAT, HI, Door
from tests.server import poll
from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread


@pytest.fixture(scope="module")
def servers() -> Iterator[list[OpenAIServer]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(in_a_thread(OpenAIServer(name, delay=0.01)))
            for name in ("one", "two", "three")
        ]


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory, servers: list[OpenAIServer]) -> Path:
    path = tmp_path_factory.mktemp("listed") / "servers.txt"
    path.write_text(f"{servers[0].url}\n")
    return path


@pytest.fixture(scope="module")
def door(
    servers: list[OpenAIServer], listed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Door]:
    def found(**source: Any) -> dict[str, Any]:
        backend = {"kind": "openai_compatible", "model": "upstream", "discover": source}
        return {"backends": [{**backend, "name": "pool"}], "balance": "round_robin"}

    config = {
        "models": {
            "listed": found(file=str(listed), every="100ms"),
            "joined": found(register=True),
            "named": found(dns=f"localhost:{urlsplit(servers[0].url).port}", every="200ms"),
            "nowhere": found(dns="no-such-name.invalid:80", every="200ms"),
        },
        "health": {"slow_start": 0},
    }
    running = Door(tmp_path_factory.mktemp("discovery"), config)
    yield running
    running.stop()
    assert "Traceback" not in Path(running._log.name).read_text()


def replicas(door: Door, model: str) -> dict[str, str]:
    """The state of each server, by its address."""
    [state] = [each for each in door.get("/admin/backends").json()["data"] if each["model"] == model]
    return {replica["name"].removeprefix("pool/"): replica["state"] for replica in state["replicas"]}


def known(door: Door, model: str, *servers: OpenAIServer) -> bool:
    return replicas(door, model) == {urlsplit(server.url).netloc: "healthy" for server in servers}


class Load:
    """Clients that ask all the time; `failures` are answers that are none."""

    def __init__(self, door: Door, model: str) -> None:
        self._door = door
        self._model = model
        self._stop = threading.Event()
        self.failures: list[Any] = []
        self.by: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._run, args=(bool(number % 2),)) for number in range(4)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def more(self, name: str) -> None:
        """Wait until a server has answered some more."""
        before = self.by[name]
        poll(lambda: self.by[name] > before + 3)

    def _run(self, stream: bool) -> None:
        body = {"model": self._model, **HI}
        while not self._stop.is_set():
            try:
                if stream:
                    chunks = self._door.stream(CHAT, body)
                    assert chunks[-1] == "[DONE]", chunks
                    self.by[chunks[0]["choices"][0]["delta"]["content"].strip()] += 1
                else:
                    reply = self._door.post(CHAT, body)
                    self.by[reply.json()["choices"][0]["message"]["content"].split()[0]] += 1
            except Exception as error:
                self.failures.append(error)
                return


def test_a_file_that_changes_moves_the_load_and_loses_nothing(
    door: Door, servers: list[OpenAIServer], listed: Path
) -> None:
    one, two, three = servers
    poll(lambda: known(door, "listed", one))
    with Load(door, "listed") as load:
        load.more("one")
        listed.write_text(f"# another one\n{one.url}\n{two.url}  # the second\n")
        poll(lambda: known(door, "listed", one, two))
        load.more("two")
        listed.write_text(f"[{two.url}, {three.url}]")
        poll(lambda: known(door, "listed", two, three))
        load.more("three")
        before = load.by["one"]
        listed.write_text("this is no address\n")  # the known ones stay
        poll(lambda: "the 2 known servers stay" in door.log())
        load.more("two")
        said = door.log().count("the 2 known servers stay")
        listed.unlink()
        poll(lambda: door.log().count("the 2 known servers stay") > said)
        load.more("three")
        assert load.by["one"] <= before + 4, "those that it had when it left"
        assert known(door, "listed", two, three)
    assert load.failures == []


def test_servers_that_differ_in_their_path_alone_are_two(
    door: Door, servers: list[OpenAIServer], listed: Path
) -> None:
    one, address = servers[0], urlsplit(servers[0].url).netloc
    listed.write_text(f"{one.url}/a\n{one.url}/b/v1\n")
    both = {f"{address}/a": "healthy", f"{address}/b/v1": "healthy"}
    poll(lambda: replicas(door, "listed") == both)
    before = len(one.requests)
    assert [door.ask("listed").status for _ in range(2)] == [200, 200]
    asked = {request.path for request in one.requests[before:] if request.method == "POST"}
    assert asked == {"/a/v1/chat/completions", "/b/v1/chat/completions"}


def test_servers_that_register_are_used_until_they_leave_or_fall_silent(
    door: Door, servers: list[OpenAIServer]
) -> None:
    one, two, _ = servers

    def say(method: str, server: OpenAIServer, **fields: Any) -> bool:
        reply = door.request(method, "/admin/backends", {"model": "joined", "url": server.url, **fields})
        assert reply.status == 200, reply.body
        return bool(reply.json()["changed"])

    nobody = door.ask("joined")
    assert (nobody.status, nobody.error["code"]) == (503, "engine_unavailable")
    assert int(nobody.headers["retry-after"]) >= 1
    assert say("POST", one, ttl=60)
    assert not say("POST", one, ttl=60), "it was known"
    poll(lambda: known(door, "joined", one))
    with Load(door, "joined") as load:
        load.more("one")
        assert say("POST", two, ttl=60, backend="pool")
        poll(lambda: known(door, "joined", one, two))
        load.more("two")
        assert not say("POST", two, ttl=1, backend="pool"), "it was known"
        poll(lambda: known(door, "joined", one))  # it did not say that it is still there
        load.more("one")
        assert say("POST", two)
        poll(lambda: known(door, "joined", one, two))
        assert say("DELETE", one)
        assert not say("DELETE", one)
        poll(lambda: known(door, "joined", two))
        load.more("two")
    assert load.failures == []


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "model"),
        ({"model": "joined"}, 400, "url"),
        ({"model": "joined", "url": "ftp://x"}, 400, "url"),
        ({"model": "joined", "url": "http://user:secret@x"}, 400, "url"),
        ({"model": "joined", "url": 7}, 400, "url"),
        ({"model": "joined", "url": "http://x", "ttl": 0}, 400, "ttl"),
        ({"model": "joined", "url": "http://x", "ttl": 1e9}, 400, "ttl"),
        ({"model": "joined", "url": "http://x", "ttl": "long"}, 400, "ttl"),
        ({"model": "joined", "url": "http://x", "backend": "lake"}, 400, "backend"),
        ({"model": "joined", "url": "http://x", "weight": 5}, 400, "weight"),
        ({"model": "named", "url": "http://x"}, 400, "backend"),
        ({"model": "nothing", "url": "http://x"}, 404, "model"),
    ],
)
def test_a_registration_that_is_wrong_is_refused(
    door: Door, body: dict[str, Any], status: int, param: str
) -> None:
    for method in ("POST", "DELETE"):
        if method == "DELETE" and param == "ttl" and body["ttl"] != "long":
            continue  # who leaves need not say for how long
        reply = door.request(method, "/admin/backends", body)
        assert (reply.status, reply.error["param"]) == (status, param), reply.body
        assert "secret" not in reply.error["message"]


def test_each_address_of_a_name_is_a_server(door: Door, servers: list[OpenAIServer]) -> None:
    port = urlsplit(servers[0].url).port
    poll(lambda: replicas(door, "named").get(f"127.0.0.1:{port}") == "healthy")
    replies = [door.ask("named") for _ in range(6)]
    assert {reply.status for reply in replies} == {200}, "an address where nobody listens is passed over"


def test_a_name_that_nobody_knows_is_said_and_keeps_nobody_from_serving(door: Door) -> None:
    poll(lambda: "no-such-name.invalid" in door.log())
    assert door.ask("nowhere").status == 503
    assert door.log().count("no-such-name.invalid") < 10, "it is not said again and again"


def test_a_model_that_nobody_was_found_for_is_told_as_one_without_replicas(door: Door) -> None:
    page = door.get("/metrics").body.decode()
    assert 'penstock_model_replicas_healthy{model_name="nowhere"} 0.0' in page
    assert 'penstock_model_replicas_healthy{model_name="named"} 1.0' in page
