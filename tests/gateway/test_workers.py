"""Several front processes: what they share is exact, and one that dies is replaced."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.config import load_settings
from penstock.gateway.accounts import KeyRing
from penstock.gateway.accounts.keys import mint
from penstock.gateway.store import Database, KeyTable
from penstock.gateway.workers import supervisor
from tests.gateway.door import CHAT, Door, behind, chat, save_tiny_chat
from tests.server import Reply, poll
from tests.servers.gated import OpenAIServer

LIMIT = 120
PRICE = {"input": 1, "output": 2}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_chat(tmp_path_factory.mktemp("tiny")))


def config(upstream: OpenAIServer, tiny: str, **more: Any) -> dict[str, Any]:
    return {
        "workers": 2,
        "drain_seconds": 5,
        "models": {
            "chat": behind(upstream.url, price=PRICE),
            "tiny": {"backends": [{"engine": tiny}]},
            **more.pop("models", {}),
        },
        "tenants": {
            "default": {},
            "few": {"requests_per_minute": LIMIT},
            "some": {"concurrent": 3},
            "poor": {"monthly_budget": 0.001},
        },
        **more,
    }


@pytest.fixture(scope="module")
def door(upstream: OpenAIServer, tiny: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    running = Door(tmp_path_factory.mktemp("workers"), config(upstream, tiny))
    yield running
    upstream.open()
    running.stop()
    assert "Traceback" not in Path(running._log.name).read_text()


Keys = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def keys(door: Door) -> Keys:
    made = {tenant: door.key(tenant) for tenant in ("default", "few", "some", "poor", "counted")}
    made["admin"] = door.key("default", "--admin")
    # Each process looks for itself.
    poll(lambda: all(door.get("/v1/models").status == 401 for _ in range(20)))
    poll(lambda: all(door.ask("chat", made["admin"]).status == 200 for _ in range(20)))
    return made


def many(count: int, ask: Callable[[], Reply]) -> list[Reply]:
    with ThreadPoolExecutor(16) as pool:
        return [future.result() for future in [pool.submit(ask) for _ in range(count)]]


def workers(door: Door) -> list[int]:
    """The front processes."""
    return [pid for pid in door.engine_pids() if "gateway.workers.worker" in command(pid)]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def test_both_answer_and_the_banner_says_how_many_there_are(door: Door, keys: Keys) -> None:
    assert "2 front processes" in "".join(door.output)
    assert len(workers(door)) == 2
    for model in ("chat", "tiny"):
        ask = functools.partial(door.ask, model, keys["default"], max_tokens=2)
        assert {reply.status for reply in many(20, ask)} == {200}


def test_a_limit_is_exact_over_both(door: Door, keys: Keys) -> None:
    began = time.monotonic()
    replies = many(3 * LIMIT, lambda: door.ask("chat", keys["few"]))
    took = time.monotonic() - began
    counts = Counter(reply.status for reply in replies)
    assert set(counts) == {200, 429}
    # A minute's worth at once, and what has run off by then.
    assert LIMIT <= counts[200] <= LIMIT * (1 + took / 60) + 1


def test_a_budget_is_exact_over_both(door: Door, keys: Keys) -> None:
    """Each may cost about 0.0001 and costs 0.000085, so ten or eleven can pass, whoever admits them."""
    replies = many(60, lambda: door.ask("chat", keys["poor"], max_tokens=40))
    assert {reply.status for reply in replies} == {200, 429}
    for _ in range(30):  # those that were only held do not come true
        door.ask("chat", keys["poor"], max_tokens=40)

    def spent() -> float:
        return sum(float(row["cost_usd"]) for row in door.usage("--tenant", "poor"))

    poll(lambda: spent() > 0.0008)
    assert spent() <= 0.001


def test_the_ledger_adds_up_over_both(door: Door, keys: Keys) -> None:
    replies = many(200, lambda: door.ask("chat", keys["counted"]))
    assert {reply.status for reply in replies} == {200}
    used = [reply.json()["usage"] for reply in replies]
    found = door.billed("counted", "chat", requests=200)
    assert found["ok"] == 200
    assert found["prompt_tokens"] == sum(usage["prompt_tokens"] for usage in used)
    assert found["completion_tokens"] == sum(usage["completion_tokens"] for usage in used)
    assert float(found["cost_usd"]) == pytest.approx(sum(usage["cost"] for usage in used))


def test_one_page_of_metrics_has_all_whoever_is_asked(door: Door, keys: Keys) -> None:
    labels = {"route": CHAT, "status": "200"}
    before = door.metric("penstock_http_requests_total", **labels)
    many(50, lambda: door.ask("chat", keys["default"]))
    for _ in range(6):
        assert door.metric("penstock_http_requests_total", **labels) == before + 50
    assert door.metric("penstock_replica_healthy", model_name="chat") == 1
    assert door.metric("penstock_queue_seconds_count", model_name="chat") >= 50
    text = door.get("/metrics").body
    assert text.count(b"# TYPE penstock_http_requests_total") == 1
    assert text.count(b"vllm:num_requests_running{") == 1, "an engine is told of once"


def test_a_registered_server_is_known_to_both(
    door: Door, keys: Keys, upstream: OpenAIServer, tiny: str
) -> None:
    joined = {
        "backends": [{"kind": "openai_compatible", "discover": {"register": True}, "model": "upstream"}]
    }
    change(door, config(upstream, tiny, models={"joined": joined}), "+joined")
    body = {"model": "joined", "url": upstream.url, "ttl": 60}
    assert door.request("POST", "/admin/backends", body, keys["admin"]).json()["changed"]
    poll(lambda: all(door.ask("joined", keys["default"]).status == 200 for _ in range(10)))
    assert door.request("DELETE", "/admin/backends", body, keys["admin"]).json()["changed"]
    poll(lambda: all(door.ask("joined", keys["default"]).status == 503 for _ in range(10)))


def change(door: Door, content: dict[str, Any], said: str) -> None:
    before = len(door.log())
    door.reload(content)
    poll(lambda: said in door.log()[before:])


def test_a_reload_reaches_both_and_a_refused_one_neither(
    door: Door, keys: Keys, upstream: OpenAIServer, tiny: str
) -> None:
    change(door, config(upstream, tiny, models={"new": behind(upstream.url)}), "+new")
    poll(lambda: all(door.ask("new", keys["default"]).status == 200 for _ in range(10)))
    wrong = config(upstream, tiny, models={"newer": behind(upstream.url)})
    wrong["models"]["tiny"]["backends"][0]["max_running"] = 3
    change(door, wrong, "The configuration was not changed")
    assert "The engines of tiny cannot be changed" in door.log()
    tracing = {"endpoint": "http://127.0.0.1:9", "headers": {"a b": "c"}}
    change(door, config(upstream, tiny, tracing=tracing), "not changed: The header 'a b' for traces")
    for _ in range(10):
        assert door.ask("newer", keys["default"]).status == 404
        assert door.ask("new", keys["default"]).status == 200
    door.write(config(upstream, tiny))


def test_one_that_is_killed_is_replaced_and_what_it_held_is_free(
    door: Door, keys: Keys, upstream: OpenAIServer, tiny: str
) -> None:
    change(door, config(upstream, tiny, models={"later": behind(upstream.url)}), "+later")
    upstream.close()
    replies: list[int] = []

    def hold() -> None:
        try:
            replies.append(door.post(CHAT, chat("wait", model="chat"), keys["some"]).status)
        except OSError:
            replies.append(0)

    before = len(upstream.bodies)
    held = [threading.Thread(target=hold) for _ in range(3)]
    for thread in held:
        thread.start()
    poll(lambda: len(upstream.bodies) == before + 3)
    assert door.ask("chat", keys["some"]).status == 429
    first = workers(door)
    for pid in first:
        os.kill(pid, signal.SIGKILL)
        poll(lambda pid=pid: pid not in workers(door))
    for thread in held:
        thread.join(10)
    assert replies == [0, 0, 0]
    upstream.open()
    poll(lambda: len(workers(door)) == 2)
    assert not set(first) & set(workers(door))
    poll(lambda: answers(door, keys["some"]))
    with ThreadPoolExecutor(3) as pool:
        statuses = list(pool.map(lambda _: door.ask("chat", keys["some"]).status, range(3)))
    assert statuses == [200, 200, 200], "nothing is held by the dead"
    assert door.ask("tiny", keys["default"], max_tokens=1).status == 200, "it found the engine again"
    assert door.ask("later", keys["default"]).status == 200, "it was told what has changed since the start"
    assert "Front process" in door.log()


def test_a_reload_reaches_those_who_are_there_while_another_is_not(
    upstream: OpenAIServer, tmp_path: Path
) -> None:
    settings = {"workers": 3, "models": {"chat": behind(upstream.url)}}
    running = Door(tmp_path, settings)
    try:
        pid = workers(running)[0]
        os.kill(pid, signal.SIGKILL)  # its successor is started after a while
        poll(lambda: "starting it again" in running.log())
        settings["models"]["new"] = behind(upstream.url)
        change(running, settings, "+new")
        poll(lambda: all(running.ask("new").status == 200 for _ in range(20)))
        poll(lambda: len(workers(running)) == 3)
        poll(lambda: all(running.ask("new").status == 200 for _ in range(20)))
        assert "Traceback" not in running.log()
    finally:
        running.stop()


def answers(door: Door, key: dict[str, str]) -> bool:
    try:
        return door.ask("chat", key).status == 200
    except OSError:
        return False


def test_a_term_finishes_streams_and_leaves_nothing_behind(upstream: OpenAIServer, tmp_path: Path) -> None:
    plain = {"workers": 2, "drain_seconds": 10, "models": {"chat": behind(upstream.url)}}
    door = Door(tmp_path, plain)
    pids = [door.process.pid, *door.engine_pids()]
    upstream.close()
    with door.streaming(CHAT, chat("wait")) as one, door.streaming(CHAT, chat("wait")) as two:
        next(one)
        next(two)
        door.signal(signal.SIGTERM)
        poll(lambda: refuses(door))
        upstream.open()
        assert list(one)[-1] == list(two)[-1] == "[DONE]"
    assert door.wait(20) == 0
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    door.stop()
    assert "Traceback" not in Path(door._log.name).read_text()


def refuses(door: Door) -> bool:
    reply = door.get("/ready")
    return reply.status == 503 and door.ask("chat").status == 503


def test_a_state_that_is_lost_unlocks_nobody(upstream: OpenAIServer, tmp_path: Path) -> None:
    """A process that is started afterwards finds no keys at all, and knows that there were some."""
    secret, record = mint("a key", "default", created=0)
    with closing(Database(tmp_path / "log.state")) as database:
        KeyTable(database).add(record)
    key = {"Authorization": f"Bearer {secret}"}
    door = Door(tmp_path, {"workers": 2, "drain_seconds": 1, "models": {"chat": behind(upstream.url)}})
    shutil.rmtree(door.state)
    first = workers(door)
    os.kill(first[0], signal.SIGKILL)
    poll(lambda: len(workers(door)) == 2 and first[0] not in workers(door))
    seen: set[int] = set()

    def both_have_answered() -> bool:
        for _ in range(10):
            assert door.ask("chat").status == 401
            seen.add(door.ask("chat", key).status)
        return seen == {200, 401}

    poll(both_have_answered)
    assert f"The state in {door.state} is gone" in door.log()
    door.stop()


def test_one_that_is_stuck_is_replaced(
    upstream: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "NOTED_BEATS", 1)
    monkeypatch.setattr(supervisor, "FATAL_BEATS", 2)
    written = tmp_path / "penstock.yaml"
    written.write_text(yaml.safe_dump({"workers": 2, "models": {"chat": behind(upstream.url)}}))
    settings = load_settings(config=written, environ={"PENSTOCK_STATE_DIR": str(tmp_path / "state")})

    async def stick() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            worker = supervisor.Worker(0, settings, tmp_path, listener, KeyRing())
            await worker.start()
            try:
                assert worker._process is not None
                stuck = worker._process.pid
                os.kill(stuck, signal.SIGSTOP)
                await asyncio.to_thread(poll, lambda: worker._process.pid != stuck)
            finally:
                await worker.kill()

    asyncio.run(stick())
    assert "does nothing" in caplog.text
    assert "ended (exit code -9)" in caplog.text


def test_a_supervisor_that_is_killed_takes_everybody_with_it(
    upstream: OpenAIServer, tiny: str, tmp_path: Path
) -> None:
    door = Door(tmp_path, config(upstream, tiny))
    pids = descendants(door.process.pid)
    assert len(pids) >= 3, "two front processes and an engine"
    assert door.ask("tiny", max_tokens=1).status == 200
    door.process.kill()
    door.process.wait()
    poll(lambda: not [pid for pid in pids if running(pid)])
    door.stop()


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(below for child in children for below in descendants(child))]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
