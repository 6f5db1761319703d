"""Replicas that an administrator takes out and brings back: in all processes, through reloads."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.config import GatewayConfig, ModelConfig
from penstock.gateway.accounts import Accounts, KeyRing
from penstock.gateway.deployment import Deployment
from penstock.gateway.discovery import SharedRegistry
from penstock.gateway.drains import Drains
from penstock.gateway.state import Gateway
from penstock.observe.metrics import Metrics
from tests.gateway.backends.test_load_watch import until
from tests.gateway.console.watching import replica, serving, state
from tests.gateway.door import Door
from tests.server import poll
from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread


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
    """Who answers; a status, where nobody does."""
    replies = [door.ask("chat") for _ in range(times)]
    return {
        reply.json()["choices"][0]["message"]["content"].split()[0]
        if reply.status == 200
        else str(reply.status)
        for reply in replies
    }


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


def test_what_cannot_be_drained_is_a_sentence(
    pair: tuple[OpenAIServer, OpenAIServer], tmp_path: Path
) -> None:
    with serving(tmp_path, two_replicas(pair)) as door:
        for body, status, code in (
            ({"model": "chat", "replica": "nobody"}, 404, "replica_not_found"),
            ({"model": "other", "replica": "one"}, 404, "model_not_found"),
            ({"model": "chat"}, 400, None),
            ({"model": "chat", "replica": "one", "drained": "yes"}, 400, None),
            ({"model": "chat", "replica": "one", "more": 1}, 400, None),
        ):
            reply = door.post("/admin/backends/drain", body)
            assert reply.status == status
            assert reply.error["message"].endswith(".")
            assert code is None or reply.error["code"] == code


def test_a_discovered_server_stays_drained_when_it_goes_and_comes(
    pair: tuple[OpenAIServer, OpenAIServer], tmp_path: Path
) -> None:
    urls = tmp_path / "servers.txt"
    both = "".join(f"{server.url}\n" for server in pair)
    urls.write_text(both)
    found = {
        "kind": "openai_compatible",
        "model": "upstream",
        "name": "pool",
        "discover": {"file": str(urls)},
    }
    found["discover"]["every"] = "100ms"  # type: ignore[index]
    config = {
        "models": {"chat": {"backends": [found], "balance": "round_robin"}},
        "health": {"slow_start": 0},
    }
    with serving(tmp_path / "door", config) as door:
        poll(lambda: answered(door) == {"one", "two"})
        name = f"pool/{pair[0].url.partition('://')[2]}"
        drain(door, name)
        assert answered(door) == {"two"}
        change(urls, f"{pair[1].url}\n")
        poll(lambda: len(state(door)["models"][0]["replicas"]) == 1)
        before = len(pair[0].bodies)
        change(urls, both)
        poll(lambda: len(state(door)["models"][0]["replicas"]) == 2)
        poll(lambda: replica(door, name)["state"] == "drained")
        assert answered(door) == {"two"}
        assert len(pair[0].bodies) == before
        # One that is not there can be brought back for when it is.
        change(urls, f"{pair[1].url}\n")
        poll(lambda: len(state(door)["models"][0]["replicas"]) == 1)
        assert drain(door, name, drained=False)["changed"]
        change(urls, both)
        poll(lambda: answered(door) == {"one", "two"})


def change(path: Path, content: str) -> None:
    path.with_suffix(".new").write_text(content)
    path.with_suffix(".new").rename(path)


def test_replicas_are_drained_where_the_console_is_off_too(
    pair: tuple[OpenAIServer, OpenAIServer], tmp_path: Path
) -> None:
    config = {**two_replicas(pair), "console": {"enabled": False}, "workers": 2, "drain_seconds": 2}
    with serving(tmp_path, config) as door:
        assert drain(door, "one")["changed"]
        time.sleep(3.0)  # both processes
        assert answered(door, 20) == {"two"}
        assert {each["name"] for each in listed(door) if each["drained"]} == {"one"}


def listed(door: Door) -> list[dict[str, Any]]:
    return list(door.get("/admin/backends").json()["data"][0]["replicas"])


async def test_the_gateway_hears_of_drains_whatever_its_console_does(tmp_path: Path) -> None:
    deployment = Deployment(ModelConfig(name="chat"), GatewayConfig(), None)
    heard = []
    deployment.dispatcher.drain = heard.append  # type: ignore[method-assign]
    gateway = Gateway(
        GatewayConfig(),
        [deployment],
        KeyRing(),
        Accounts.open(None),
        Metrics(),
        SharedRegistry(tmp_path),
        Drains(tmp_path),
    )
    clock = asyncio.create_task(gateway.keep_time())  # and no console's
    await until(lambda: frozenset() in heard)
    await Drains(tmp_path).change("chat", "one", True)  # another process
    await until(lambda: frozenset({"one"}) in heard)
    clock.cancel()


async def test_drains_that_could_not_be_read_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deployment = Deployment(ModelConfig(name="chat"), GatewayConfig(), None)
    heard = []
    deployment.dispatcher.drain = heard.append  # type: ignore[method-assign]
    drains = Drains(tmp_path)
    await Drains(tmp_path).change("chat", "one", True)

    def unreadable(_: Path) -> bytes:
        raise OSError("too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", unreadable)
        for _ in range(5):
            drains.apply([deployment])
    drains.apply([deployment])  # the file is the same as before
    assert heard == [frozenset()] * 5 + [frozenset({"one"})]
    assert len([record for record in caplog.records if "too many open files" in record.getMessage()]) == 1


async def test_drains_stay_when_their_file_is_cleaned_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deployment = Deployment(ModelConfig(name="chat"), GatewayConfig(), None)
    heard = []
    deployment.dispatcher.drain = heard.append  # type: ignore[method-assign]
    drains = Drains(tmp_path)
    await drains.change("chat", "one", True)
    drains.apply([deployment])
    (tmp_path / "drained.json").unlink()
    for _ in range(3):
        drains.apply([deployment])
    await drains.change("chat", "two", True)
    drains.apply([deployment])
    assert heard == [frozenset({"one"})] * 4 + [frozenset({"one", "two"})]
    assert caplog.text.count("Their file is gone.") == 1


def test_a_new_start_forgets_who_was_drained(pair: tuple[OpenAIServer, OpenAIServer], tmp_path: Path) -> None:
    with serving(tmp_path, two_replicas(pair)) as door:
        drain(door, "one")
        assert answered(door) == {"two"}
    with serving(tmp_path, two_replicas(pair)) as door:
        poll(lambda: answered(door) == {"one", "two"})


def test_all_processes_know_of_a_drain_and_the_console_of_all_processes(
    pair: tuple[OpenAIServer, OpenAIServer], tmp_path: Path
) -> None:
    with serving(tmp_path, {**two_replicas(pair), "workers": 2, "drain_seconds": 2}) as door:
        asked = 0
        while answered(door, 10) != {"one", "two"}:
            asked += 10
        asked += 10
        drain(door, "one")
        time.sleep(3.0)  # both processes
        before = len(pair[0].bodies)
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda _: door.ask("chat"), range(60)))
        asked += 60
        assert len(pair[0].bodies) == before
        sightings: list[dict[str, Any]] = []

        def whole() -> bool:
            """Whichever is asked, and each is now and then."""
            sightings[:] = [state(door) for _ in range(10)]
            return all(sum(point["requests"] for point in each["history"]) == asked for each in sightings)

        poll(whole)
        assert all(each["processes"] == 2 for each in sightings)
        assert all(replica(door, "one")["drained"] for _ in range(10))
        # A front process that is started again knows, too.
        [victim, _] = door.engine_pids()  # the supervisor's children
        os.kill(victim, signal.SIGKILL)
        poll(lambda: state(door)["processes"] == 2 and victim not in door.engine_pids())
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda _: door.ask("chat"), range(60)))
        assert len(pair[0].bodies) == before
