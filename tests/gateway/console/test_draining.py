"""Replicas that an administrator takes out and brings back: in all processes, through reloads."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

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
        time.sleep(1.0)
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
