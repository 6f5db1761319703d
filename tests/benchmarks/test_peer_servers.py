"""Servers of the comparison as they run: started, kept, ended, and told of when they cannot be started."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.gateway.processes import Process
from benchmarks.peers import environments
from benchmarks.peers.environments import Recipe, UnavailableError, completed, made
from benchmarks.peers.model import as_safetensors
from benchmarks.peers.running import Patience, Server, Servers, first_answer
from benchmarks.peers.servers import Launch, Setting, System, free_port
from benchmarks.peers.starts import COSTLY_SECONDS

SMALL = Path(__file__).parents[1] / "bench" / "small_server.py"
PATIENCE = Patience(start=60.0, settle=0.0, watch=0.05)
Prepare = Callable[[Setting], Launch]


def small(good: int) -> Launch:
    """A server that gives so many answers; whoever asks for more gets none."""
    port = free_port()
    return Launch(command=[sys.executable, "-S", str(SMALL), str(port), str(good)], port=port, version="1")


def ends(code: str) -> Launch:
    return Launch(command=[sys.executable, "-S", "-c", code], port=free_port(), version="1")


@contextmanager
def servers(folder: Path, patience: Patience = PATIENCE, **prepare: Prepare) -> Iterator[Servers]:
    setting = Setting(folder / "model.gguf", folder / "envs", folder, lambda _: None)
    systems = {name: System(title=name, numbers="any", prepare=each) for name, each in prepare.items()}
    all_of_them = Servers(setting, systems, patience)
    try:
        yield all_of_them
    finally:
        all_of_them.stop()


def test_a_server_that_answers_is_ready_weighed_and_ended_after_its_turn(tmp_path: Path) -> None:
    with servers(tmp_path, peer=lambda _: small(100)) as running:
        server = running.ready("peer")
        assert isinstance(server, Server)
        assert running.ready("peer") is server
        (start,) = running.starts["peer"]
        assert start.idle_bytes > 2**20
        pids = server.process.tree()
        assert len(pids) == 2  # it has a child, as an engine is one
        running.rest("peer")
        assert running.processes == []
        wait_until(lambda: not any(lives(pid) for pid in pids))
        assert running.ready("peer") is not server
        assert len(running.starts["peer"]) == 2


def test_a_costly_server_stays_after_its_turn_until_all_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.peers.running.available_memory", lambda: 2**60)
    with servers(tmp_path, peer=lambda _: small(100)) as running:
        server = running.ready("peer")
        assert server is not None
        server.start = replace(server.start, seconds=COSTLY_SECONDS + 1, idle_cores=0.0)
        running.rest("peer")
        assert running.ready("peer") is server
        running.stop()
        assert running.processes == []
        assert server.process.popen.poll() is not None


def test_a_server_that_ends_at_once_is_missing_with_its_last_error_and_not_tried_again(
    tmp_path: Path,
) -> None:
    tried = []

    def prepare(_: Setting) -> Launch:
        tried.append(1)
        return ends("import sys; print('ValueError: no such model'); print('bye'); sys.exit(3)")

    with servers(tmp_path, peer=prepare) as running:
        assert running.ready("peer") is None
        assert running.ready("peer") is None
        assert running.missing == {"peer": "it ended with 3: ValueError: no such model"}
        assert running.processes == []
    assert tried == [1]


def test_a_server_that_hangs_while_starting_is_missing_and_leaves_no_process(tmp_path: Path) -> None:
    patience = replace(PATIENCE, start=1.0)
    with servers(tmp_path, patience, peer=lambda _: small(0)) as running:
        assert running.ready("peer") is None
        assert running.missing["peer"].startswith("no answer within 1 s, at last ")
        assert running.processes == []


def test_a_request_that_is_never_answered_ends_with_the_time_for_the_start(tmp_path: Path) -> None:
    launch = small(0)
    log = tmp_path / "log"
    process = Process(launch.command, cores=os.sched_getaffinity(0), log=log)
    try:
        wait_until(lambda: str(launch.port) in log.read_text())  # it listens
        with pytest.raises(UnavailableError, match="at last a request without an answer"):
            asyncio.run(first_answer(launch, process, 0.5))
    finally:
        process.stop()


def test_a_program_that_is_not_there_is_a_reason_and_not_the_end(tmp_path: Path) -> None:
    absent = Launch(command=[str(tmp_path / "absent")], port=free_port(), version="1")
    with servers(tmp_path, peer=lambda _: absent, other=lambda _: small(100)) as running:
        assert running.ready("peer") is None
        assert "No such file or directory" in running.missing["peer"]
        assert running.ready("other") is not None


def test_a_server_that_had_started_before_is_told_of_as_a_failure(tmp_path: Path) -> None:
    with servers(tmp_path, peer=lambda _: small(100)) as running:
        assert running.ready("peer") is not None
        running.rest("peer")
        running.launches["peer"] = ends("raise SystemExit(4)")
        assert running.ready("peer") is None
        assert running.failures == ["peer did not start: it ended with 4: it said nothing"]
        assert running.missing == {}


def test_an_environment_that_cannot_be_made_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments.sys, "executable", "/bin/false")
    with pytest.raises(UnavailableError, match="venv ended with 1: it gave no reason"):
        made(Recipe(name="any", requirements=("any",)), tmp_path, lambda _: None)


def test_work_that_hangs_or_fails_is_told_with_what_it_was(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"pip install did not end within 0\.1 s"):
        completed("pip install", ["sleep", "60"], 0.1)
    with pytest.raises(UnavailableError, match="writing the GGUF as safetensors ended with 1"):
        as_safetensors(tmp_path / "model.gguf", tmp_path, Path("/bin/false"), lambda _: None)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
