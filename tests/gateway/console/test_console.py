"""The console of a running server: what it shows, who may see it, and what leaving or stopping does."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.door import Door, behind
from tests.server import events, poll
from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread

PRICE = {"input": 1, "output": 2}
HTML = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture(scope="module")
def upstream() -> Iterator[OpenAIServer]:
    with in_a_thread(OpenAIServer()) as server:
        yield server


@contextmanager
def serving(folder: Path, config: dict[str, Any]) -> Iterator[Door]:
    door = Door(folder, config)
    try:
        yield door
    finally:
        door.stop()


@pytest.fixture(scope="module")
def door(upstream: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    config = {
        "models": {"chat": behind(upstream.url, price=PRICE)},
        "tenants": {"acme": {"monthly_budget": 50}},
    }
    with serving(tmp_path_factory.mktemp("console"), config) as made:
        yield made


def state(door: Door, **headers: str) -> dict[str, Any]:
    reply = door.request("GET", "/console/state", headers=headers)
    assert reply.status == 200, reply.body
    return dict(reply.json())


@contextmanager
def stream(door: Door, **headers: str) -> Iterator[Iterator[Any]]:
    connection = http.client.HTTPConnection(door.host, door.port, timeout=30)
    with closing(connection):
        connection.request("GET", "/console/events", headers=headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        yield events(response)


def replica(door: Door, name: str) -> dict[str, Any]:
    found = [each for model in state(door)["models"] for each in model["replicas"] if each["name"] == name]
    assert len(found) == 1, found
    return dict(found[0])


def test_what_was_asked_is_seen_in_traffic_recent_requests_and_history(door: Door) -> None:
    replies = [door.ask("chat") for _ in range(5)]
    assert {reply.status for reply in replies} == {200}
    assert door.ask("nothing").status == 404
    seen: dict[str, Any] = {}

    def shown() -> bool:
        seen.update(state(door))
        return sum(point["requests"] for point in seen["history"]) >= 6

    poll(shown)
    [model] = seen["models"]
    used = [reply.json()["usage"] for reply in replies]
    window = seen["window"]
    assert model["traffic"]["requests"] * window == pytest.approx(5)
    assert model["traffic"]["output_tokens"] * window == pytest.approx(
        sum(u["completion_tokens"] for u in used)
    )
    assert model["traffic"]["input_tokens"] * window == pytest.approx(sum(u["prompt_tokens"] for u in used))
    assert model["traffic"]["e2e"]["count"] == 5
    assert 0 < model["traffic"]["e2e"]["p50"] <= model["traffic"]["e2e"]["p99"] < 5
    assert seen["traffic"]["requests"] * window == pytest.approx(6)
    ok = [each for each in seen["recent"] if each["outcome"] == "ok"]
    assert [each["id"] for each in ok] == [reply.headers["x-request-id"] for reply in reversed(replies)]
    assert {each["outcome"] for each in seen["recent"]} == {"ok", "rejected"}
    assert all(abs(each["at"] - seen["at"]) < 60 for each in seen["recent"])
    assert {"admission", "attempt"} <= {phase["name"] for phase in ok[0]["phases"]}
    assert model["dollars_per_million"] > 0
    poll(lambda: {each["name"]: each["state"] for each in state(door)["objectives"]}["errors"] == "ok")
    assert seen["uptime"] > 0
    assert seen["processes"] == 1


def test_the_month_of_the_ledger_and_budgets_are_shown_for_tenants(door: Door) -> None:
    door.ask("chat")

    def spent() -> bool:
        tenants = {each["name"]: each for each in state(door)["tenants"]}
        return "default" in tenants and tenants["default"]["dollars"] > 0 and tenants["acme"]["budget"] == 50

    poll(spent)


def test_browsers_get_the_page_and_programs_the_index(door: Door) -> None:
    page = door.request("GET", "/", headers=HTML)
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert b"<html" in page.body
    index = door.get("/")
    assert index.json()["documentation"] == "/openapi.json"
    assert "/console/state" in index.json()["paths"]


@pytest.mark.parametrize(
    "name", ["nothing.js", "__init__.py", "..%2f__init__.py", "%2e%2e/record.py", "a/b.js"]
)
def test_only_the_pages_files_are_given_out(door: Door, name: str) -> None:
    reply = door.get(f"/console/{name}")
    assert reply.status == 404
    assert reply.error["code"] == "unknown_url"


def test_events_bring_the_state_each_second(door: Door) -> None:
    with stream(door) as arriving:
        first = next(arriving)
        began = time.monotonic()
        second = next(arriving)
        assert 0.5 < time.monotonic() - began < 5
    assert second["at"] > first["at"]
    assert second["models"][0]["name"] == "chat"


def test_a_closed_tab_is_forgotten_without_a_word(door: Door) -> None:
    before = door.log()
    for _ in range(3):
        with stream(door) as arriving:
            next(arriving)
    time.sleep(1.5)
    assert "Traceback" not in door.log()[len(before) :]
    poll(lambda: door.metric("penstock_http_requests_total", route="/console/events", status="499") >= 3)


def test_there_is_an_end_to_how_many_may_look(door: Door) -> None:
    connections = []
    try:
        for _ in range(100):
            connection = http.client.HTTPConnection(door.host, door.port, timeout=30)
            connections.append(connection)
            connection.request("GET", "/console/events")
            assert connection.getresponse().status == 200
        refused = door.get("/console/events")
        assert refused.status == 503
        assert refused.error["code"] == "too_many_consoles"
        assert door.ask("chat").status == 200
    finally:
        for connection in connections:
            connection.close()
    poll(lambda: _opens(door))


def _opens(door: Door) -> bool:
    with closing(http.client.HTTPConnection(door.host, door.port, timeout=30)) as connection:
        connection.request("GET", "/console/events")
        return connection.getresponse().status == 200


@pytest.mark.parametrize(
    "host", ["rebound.example", "rebound.example:8000", "127.0.0.1.evil.example", "[::2]"]
)
def test_a_page_whose_name_leads_here_sees_nothing_where_there_are_no_keys(door: Door, host: str) -> None:
    for path in ("/console/state", "/console/events", "/admin/backends"):
        assert door.request("GET", path, headers={"Host": host}).status == 403, path
    body = {"model": "chat", "replica": "x"}
    assert door.request("POST", "/admin/backends/drain", body, {"Host": host}).status == 403


@pytest.mark.parametrize("host", ["localhost:1234", "127.0.0.1", "[::1]:80", ""])
def test_names_of_this_machine_may_look(door: Door, host: str) -> None:
    assert door.request("GET", "/console/state", headers={"Host": host}).status == 200


def test_where_there_are_keys_only_administrators_look(upstream: OpenAIServer, tmp_path: Path) -> None:
    config = {"models": {"chat": behind(upstream.url)}}
    with serving(tmp_path, config) as door:
        plain, admin = door.key("acme"), door.key("ops", "--admin")
        poll(lambda: door.get("/console/state").status == 401)
        for path in ("/console/state", "/console/events", "/console/reports/a.html"):
            assert door.get(path).status == 401
            assert door.request("GET", path, headers=plain).status == 403
        assert (
            door.request("GET", "/console/state", headers={"Authorization": "Bearer nonsense"}).status == 401
        )
        # A name is no matter once there is a key: whoever rebinds one has none.
        assert state(door, Host="console.example", **admin)["models"][0]["name"] == "chat"
        with stream(door, **admin) as arriving:
            assert next(arriving)["version"]
        assert door.request("GET", "/", headers=HTML).status == 200
        body = {"model": "chat", "replica": "upstream"}
        assert door.post("/admin/backends/drain", body).status == 401
        assert door.post("/admin/backends/drain", body, plain).status == 403


def test_a_console_that_is_off_is_not_there(upstream: OpenAIServer, tmp_path: Path) -> None:
    config = {"models": {"chat": behind(upstream.url)}, "console": {"enabled": False}}
    with serving(tmp_path, config) as door:
        assert door.request("GET", "/", headers=HTML).json()["name"] == "penstock"
        assert door.get("/console/state").error["code"] == "console_off"
        assert door.get("/console/index.html").status == 404
        # It is a matter of configuration: a reload turns it on.
        door.reload({"models": {"chat": behind(upstream.url)}})
        poll(lambda: door.get("/console/state").status == 200)


def test_open_streams_do_not_hold_up_the_end(upstream: OpenAIServer, tmp_path: Path) -> None:
    with serving(tmp_path, {"models": {"chat": behind(upstream.url)}}) as door, stream(door) as arriving:
        next(arriving)
        began = time.monotonic()
        door.signal(signal.SIGTERM)
        rest = list(arriving)
        assert all(json.dumps(each) for each in rest)
        assert door.wait() == 0
        assert time.monotonic() - began < 4
        assert "Traceback" not in door.log()


def test_reports_are_listed_and_shown_as_they_are_and_nothing_else_is(door: Door) -> None:
    folder = door.state / "reports"
    folder.mkdir(exist_ok=True)
    (folder / "one.html").write_text("<!DOCTYPE html><title>A &amp; B</title><p>figures")
    (folder / "secret.txt").write_text("no page")
    (door.state / "outside.html").write_text("not in the folder")
    (folder / "link.html").symlink_to(door.state / "outside.html")

    def listed() -> bool:
        return any(each["name"] == "one.html" for each in state(door)["reports"])

    poll(listed)
    titles = {each["name"]: each["title"] for each in state(door)["reports"]}
    assert titles["one.html"] == "A & B"
    reply = door.get("/console/reports/one.html")
    assert b"figures" in reply.body
    assert "sandbox" in reply.headers["content-security-policy"]
    for name in ("secret.txt", "none.html", "..%2foutside.html", "link.html", ".html", "%00.html"):
        assert door.get(f"/console/reports/{name}").status == 404, name


# ---------------------------------------------------------------- drained replicas


@pytest.fixture
def pair() -> Iterator[tuple[OpenAIServer, OpenAIServer]]:
    with in_a_thread(OpenAIServer("one")) as one, in_a_thread(OpenAIServer("two")) as two:
        yield one, two


def two_replicas(pair: tuple[OpenAIServer, OpenAIServer], **more: Any) -> dict[str, Any]:
    each = {"kind": "openai_compatible", "model": "upstream"}
    named = [{**each, "name": server.name, "url": server.url} for server in pair]
    return {"models": {"chat": {"backends": named, "balance": "round_robin", **more}}}


def drain(door: Door, name: str, drained: bool = True, model: str = "chat") -> dict[str, Any]:
    reply = door.post("/admin/backends/drain", {"model": model, "replica": name, "drained": drained})
    assert reply.status == 200, reply.body
    return dict(reply.json())


def answered(door: Door, times: int = 8) -> set[str]:
    return {door.ask("chat").json()["choices"][0]["message"]["content"].split()[0] for _ in range(times)}


def test_a_drained_replica_finishes_what_it_has_and_gets_nothing_new(
    pair: tuple[OpenAIServer, OpenAIServer], tmp_path: Path
) -> None:
    one, two = pair
    with serving(tmp_path, two_replicas(pair)) as door, ThreadPoolExecutor(4) as pool:
        poll(lambda: answered(door) == {"one", "two"})
        wait = {"messages": [{"role": "user", "content": "wait"}], "max_tokens": 2}
        waiting = [pool.submit(door.ask, "chat", **wait) for _ in range(4)]
        poll(lambda: one.running and two.running)
        said = drain(door, "one")
        assert said["changed"]
        assert said["requests"] >= 1
        assert replica(door, "one")["state"] == "drained"
        assert replica(door, "one")["drained"]
        assert answered(door) == {"two"}
        one.open()
        two.open()
        # Those that it had were not taken away from it.
        texts = [each.result().json()["choices"][0]["message"]["content"].split()[0] for each in waiting]
        assert sorted(texts) == ["one", "one", "two", "two"]
        assert not drain(door, "one")["changed"]
        assert drain(door, "one", drained=False)["changed"]
        assert replica(door, "one")["state"] == "healthy"
        poll(lambda: answered(door) == {"one", "two"})


def test_draining_outlives_a_reload_and_leaves_a_model_without_replicas_unanswered(
    pair: tuple[OpenAIServer, OpenAIServer], tmp_path: Path
) -> None:
    with serving(tmp_path, two_replicas(pair)) as door:
        poll(lambda: answered(door) == {"one", "two"})
        drain(door, "one")
        door.reload(two_replicas(pair, max_tokens=7))
        poll(lambda: door.ask("chat", max_tokens=50).headers["x-penstock-max-tokens"] == "7")
        assert answered(door) == {"two"}
        # Not even a replica that goes and comes is back by that.
        without = two_replicas(pair[1:])
        door.reload(without)
        poll(lambda: len(state(door)["models"][0]["replicas"]) == 1)
        door.reload(two_replicas(pair))
        poll(lambda: len(state(door)["models"][0]["replicas"]) == 2)
        poll(lambda: replica(door, "one")["state"] == "drained")
        assert answered(door) == {"two"}
        drain(door, "two")
        refused = door.ask("chat")
        assert refused.status == 503
        assert "drained" in refused.error["message"]
        assert door.get("/ready").status == 503
        drain(door, "two", drained=False)
        assert answered(door) == {"two"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"model": "chat", "replica": "nobody"}, 404, "replica_not_found"),
        ({"model": "other", "replica": "one"}, 404, "model_not_found"),
        ({"model": "chat"}, 400, None),
        ({"model": "chat", "replica": "one", "drained": "yes"}, 400, None),
        ({"model": "chat", "replica": "one", "more": 1}, 400, None),
    ],
)
def test_what_cannot_be_drained_is_a_sentence(
    door: Door, body: dict[str, Any], status: int, code: str
) -> None:
    reply = door.post("/admin/backends/drain", body)
    assert reply.status == status
    assert reply.error["message"].endswith(".")
    assert code is None or reply.error["code"] == code


def test_all_processes_know_of_a_drain_and_the_console_of_all_processes(
    pair: tuple[OpenAIServer, OpenAIServer], tmp_path: Path
) -> None:
    with serving(tmp_path, {**two_replicas(pair), "workers": 2, "drain_seconds": 2}) as door:
        poll(lambda: answered(door, 30) == {"one", "two"})
        asked = 30
        drain(door, "one")
        time.sleep(1.0)
        before = len(pair[0].bodies)
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda _: door.ask("chat"), range(60)))
        asked += 60
        assert len(pair[0].bodies) == before
        sightings: list[dict[str, Any]] = []

        def whole() -> bool:
            sightings.append(state(door))
            return sum(point["requests"] for point in sightings[-1]["history"]) >= asked

        poll(whole)
        assert all(each["processes"] == 2 for each in sightings)
        totals = {sum(point["requests"] for point in state(door)["history"]) for _ in range(10)}
        assert len(totals) == 1, totals
        assert all(replica(door, "one")["drained"] for _ in range(10))
        # A front process that is started again knows, too.
        [victim, _] = door.engine_pids()  # the supervisor's children
        os.kill(victim, signal.SIGKILL)
        poll(lambda: state(door)["processes"] == 2 and victim not in door.engine_pids())
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda _: door.ask("chat"), range(60)))
        assert len(pair[0].bodies) == before
