"""A server that a benchmark starts itself: until its first answer, and down to its last process."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO
from urllib.parse import urlsplit

from penstock.bench.online import run_online
from penstock.bench.processes import process_tree
from penstock.bench.target import Target, first_model
from penstock.bench.workloads import Workload
from penstock.errors import ConfigError, EngineUnavailableError

POLL_SECONDS = 0.02
END_SECONDS = 15.0  # to end by itself
SHOWN_LINES = 15  # of its output, when it does not come up
ONE_TOKEN = Workload(name="first answer", requests=1, input_len=(8, 8), output_len=(1, 1))


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    model: str
    startup_seconds: float  # from the start of its process to its first token


@contextmanager
def started(
    command: str,
    url: str,
    *,
    model: str | None,
    api_key: str | None,
    patience: float,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Started]:
    """Run a server while the block runs; `patience` is in seconds, until its first answer."""
    words = _words(command)
    if _listens(url):
        raise ConfigError(f"Something answers at {url} already; end it, or leave --server out to measure it.")
    with tempfile.TemporaryFile() as output:
        begin = time.perf_counter()
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            raise ConfigError(f"--server cannot run {words[0]!r}: {error.strerror}.") from None
        try:
            name = _first_answer(process, url, model, api_key, begin + patience, output, stop)
            yield Started(process.pid, name, time.perf_counter() - begin)
        finally:
            end_tree(process)


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Ask a process and its children to end, and make them if they do not."""
    tree = process_tree(process.pid)
    _signal(tree[:1], signal.SIGTERM)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        tree = process_tree(process.pid)
    # What its parent left behind is of no use to anybody. It led a process group of its own.
    _signal(tree, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # A signal is only on its way: what a child holds, such as a port, is free when the child is gone.
    until = time.perf_counter() + END_SECONDS
    while any(map(process_tree, tree)) and time.perf_counter() < until:
        time.sleep(POLL_SECONDS)


def _first_answer(
    process: subprocess.Popen[bytes],
    url: str,
    model: str | None,
    api_key: str | None,
    until: float,
    output: IO[bytes],
    stop: Callable[[], bool],
) -> str:
    """The model's name, after one token came from it."""
    name, problem = model, "it does not listen"
    while time.perf_counter() < until:
        if stop():
            raise KeyboardInterrupt
        if (code := process.poll()) is not None:
            raise EngineUnavailableError(f"The server of --server ended with status {code}.{_tail(output)}")
        if _listens(url):
            try:
                name = name or asyncio.run(first_model(url, api_key))
                target = Target(url=url, model=name, api_key=api_key, timeout=until - time.perf_counter())
                run = asyncio.run(run_online(target, ONE_TOKEN, ONE_TOKEN.jobs(), stop=stop))
                if run.completed:
                    return name
                problem = run.first_error or "its answer had another length than was asked for"
            except EngineUnavailableError as error:
                problem = str(error)
        time.sleep(POLL_SECONDS)
    raise EngineUnavailableError(f"The server of --server gave no answer in time: {problem}{_tail(output)}")


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"--server cannot be read as a command, {error}: {command!r}.") from None
    if not words:
        raise ConfigError("--server is empty; give the command that starts the server.")
    return words


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _tail(output: IO[bytes]) -> str:
    output.seek(0)
    lines = output.read().decode("utf-8", "replace").strip().splitlines()[-SHOWN_LINES:]
    return " Its last words:\n" + "\n".join(lines) if lines else " It said nothing."


def _signal(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
