"""One page of metrics of several front processes: whatever becomes of them, no count on it falls."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.door import Door, behind, save_tiny_chat
from tests.gateway.test_workers import Keys, many, workers
from tests.observe.pages import Samples, samples
from tests.server import poll
from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread

TENANTS = 12
LIMIT = 5  # of them that are told apart


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    tiny = save_tiny_chat(tmp_path_factory.mktemp("tiny"))
    with in_a_thread(OpenAIServer()) as upstream:
        upstream.open()
        config = {
            "workers": 2,
            "models": {"chat": behind(upstream.url), "tiny": {"backends": [{"engine": str(tiny)}]}},
            "tenants": {"default": {}},
            "metrics": {"label_values": LIMIT},
        }
        running = Door(tmp_path_factory.mktemp("workers"), config)
        yield running
        running.stop()
        assert "Traceback" not in Path(running._log.name).read_text()


@pytest.fixture(scope="module")
def keys(door: Door) -> Keys:
    made = {f"tenant-{number}": door.key(f"tenant-{number}") for number in range(TENANTS)}
    poll(lambda: all(door.ask("chat", key).status == 200 for key in made.values() for _ in range(4)))
    return made


def grown(page: Samples) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What must never fall."""
    return {
        (name, tuple(sorted(labels.items()))): value
        for name, rows in page.items()
        if name.endswith(("_total", "_bucket", "_sum", "_count"))
        for labels, value in rows
    }


class Watch(threading.Thread):
    """Scrapes as fast as it can, and notes every count that is below what it was."""

    def __init__(self, door: Door) -> None:
        super().__init__()
        self._door = door
        self._ended = threading.Event()
        self.scrapes = 0
        self.fallen: list[str] = []

    def run(self) -> None:
        before: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        while not self._ended.is_set():
            try:
                reply = self._door.get("/metrics")
            except OSError:  # the process that was asked has just been ended
                continue
            if reply.status != 200:
                self.fallen.append(f"status {reply.status}")
                continue
            now = grown(samples(reply.body))
            self.fallen += [
                f"{key}: {value} after {before[key]}"
                for key, value in now.items()
                if value < before.get(key, 0)
            ]
            self.fallen += [f"{key} is gone" for key in before if key not in now and "engine" not in str(key)]
            before |= now
            self.scrapes += 1

    def end(self) -> None:
        self._ended.set()
        self.join()


def answered(door: Door, model: str) -> float:
    return door.metric("penstock_requests_total", model_name=model, outcome="ok")


def test_no_count_falls_when_a_process_dies_or_hangs(door: Door, keys: Keys) -> None:
    key = keys["tenant-0"]
    for model in ("chat", "tiny"):
        ask = functools.partial(door.ask, model, key, max_tokens=2)
        assert {reply.status for reply in many(20, ask)} == {200}
    before = {model: answered(door, model) for model in ("chat", "tiny")}
    watch = Watch(door)
    watch.start()
    try:
        for turn in range(2):
            pid = workers(door)[turn]
            os.kill(pid, signal.SIGKILL)
            poll(lambda pid=pid: len(workers(door)) == 2 and pid not in workers(door))
            many(10, lambda: door.ask("chat", key))
        stopped = workers(door)[0]
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(3.0)  # longer than anybody waits for it
        os.kill(stopped, signal.SIGCONT)
        poll(lambda: all(door.ask("chat", key).status == 200 for _ in range(10)))
    finally:
        watch.end()
    assert watch.fallen == []
    assert watch.scrapes > 10
    assert answered(door, "chat") >= before["chat"] + 20
    assert answered(door, "tiny") == before["tiny"], "what the dead had counted is still there, once"


def test_the_processes_tell_the_same_names_apart(door: Door, keys: Keys) -> None:
    def asked(tenant: str) -> float:
        return door.metric("penstock_tenant_requests_total", tenant=tenant, outcome="ok")

    for tenant, key in keys.items():
        before = asked(tenant), asked("other")
        many(8, lambda key=key: door.ask("chat", key, max_tokens=2))
        poll(lambda tenant=tenant, before=before: asked(tenant) + asked("other") == sum(before) + 8)
        after = asked(tenant) - before[0], asked("other") - before[1]
        assert after in ((8, 0), (0, 8)), f"{tenant} is split"
    names = {labels["tenant"] for labels, _ in door.metrics("penstock_tenant_requests_total")}
    # The configured one has its place, whether anybody was taken for it before there were keys or not.
    assert len(names | {"default"}) == LIMIT + 1
    assert "other" in names
