"""Servers as they run: started until their first answer, kept or stopped after a turn, ended for certain."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
from gateway.processes import TICKS, Process

from penstock.bench.memory import MemorySampler, tree_memory
from penstock.bench.online import run_online
from penstock.bench.progress import Progress
from penstock.bench.statistics import Run
from penstock.bench.target import Target, open_session
from penstock.bench.workloads import Job, Workload
from penstock.machine import available_memory, memory_limit, total_memory

from .environments import UnavailableError
from .servers import Launch, Setting, System
from .starts import Start, stays

POLL_SECONDS = 0.02
WARM = Workload(name="warm-up", requests=4, input_len=(128, 128), output_len=(16, 16), clients=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds."""

    start: float = 600.0  # until the first answer
    settle: float = 1.0  # after it, before an idle server is weighed
    watch: float = 2.0  # how long its idle processor time is watched


@dataclass(slots=True)
class Server:
    """A server that answers."""

    launch: Launch
    process: Process
    start: Start
    fresh: bool = True  # no run since its start

    @property
    def target(self) -> Target:
        return Target(url=self.launch.url, model=self.launch.model)

    def warm(self, salt: str) -> None:
        asyncio.run(run_online(self.target, WARM, WARM.jobs(salt=salt)))

    def run(self, workload: Workload, jobs: list[Job], repeat: int, progress: Progress) -> tuple[Run, float]:
        """One run, with the most memory of the process tree, and the start if it has just started.

        Also the cores that others used meanwhile: a run beside other work says little.
        """
        before, began = self._others(), time.monotonic()
        with MemorySampler(self.process.popen.pid) as memory:
            run = asyncio.run(run_online(self.target, workload, jobs, repeat=repeat, progress=progress))
        others = (self._others() - before) / (time.monotonic() - began)
        started, self.fresh = self.start.seconds if self.fresh else None, False
        return replace(run, peak_memory_bytes=memory.peak, startup_seconds=started), max(0.0, others)

    def _others(self) -> float:
        return busy_seconds() - self.process.cpu_seconds() - time.process_time()


@dataclass(slots=True)
class Servers:
    """All servers of a run: at most one of them is asked at a time."""

    setting: Setting
    systems: dict[str, System]
    patience: Patience = Patience()
    launches: dict[str, Launch] = field(default_factory=dict)
    starts: dict[str, list[Start]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # what never started, and why
    failures: list[str] = field(default_factory=list)  # of servers that had started before
    processes: list[Process] = field(default_factory=list)
    _running: dict[str, Server] = field(default_factory=dict)

    def ready(self, name: str) -> Server | None:
        """The server, started if it is not; None if it cannot be. One that never could is not tried again."""
        if name in self.missing:
            return None
        server = self._running.get(name)
        try:
            if server is not None and server.process.popen.poll() is None:
                return server
            return self._started(name)
        except (UnavailableError, OSError, subprocess.SubprocessError) as error:
            if name in self.starts:
                self.failures.append(f"{name} did not start: {error}")
            else:
                self.missing[name] = str(error)
            return None

    def rest(self, name: str) -> None:
        """The turn of a server is over."""
        server = self._running[name]
        if not stays(server.start, available_memory(), memory_limit() or total_memory()):
            self._end(server.process)
            del self._running[name]

    def stop(self) -> None:
        for process in list(self.processes):
            self._end(process)
        self._running.clear()

    def _started(self, name: str) -> Server:
        if name not in self.launches:
            self.launches[name] = self.systems[name].prepare(self.setting)
        launch = self.launches[name]
        began = time.monotonic()
        process = Process(
            launch.command,
            cores=os.sched_getaffinity(0),
            log=self.setting.folder / f"{name}.log",
            env=launch.env,
        )
        self.processes.append(process)
        try:
            asyncio.run(first_answer(launch, process, self.patience.start))
        except Exception:
            self._end(process)
            raise
        seconds = time.monotonic() - began
        time.sleep(self.patience.settle)
        before = process.cpu_seconds()
        time.sleep(self.patience.watch)
        idle = (process.cpu_seconds() - before) / self.patience.watch
        start = Start(seconds, tree_memory(process.popen.pid) or 0, idle)
        self.starts.setdefault(name, []).append(start)
        self._running[name] = Server(launch, process, start)
        return self._running[name]

    def _end(self, process: Process) -> None:
        process.stop()
        self.processes.remove(process)


async def first_answer(launch: Launch, process: Process, seconds: float) -> None:
    """Ask for one token until it comes, for so many seconds in all."""
    deadline = time.monotonic() + seconds
    body = {"model": launch.model, "prompt": list(range(1000, 1016)), "max_tokens": 1, "temperature": 0.0}
    seen = "nothing"
    async with open_session(Target(url=launch.url, model=launch.model)) as session:
        while (left := deadline - time.monotonic()) > 0:
            if (code := process.popen.poll()) is not None:
                raise UnavailableError(f"it ended with {code}: {last_words(process)}")
            limit = aiohttp.ClientTimeout(total=left)
            try:
                async with session.post(f"{launch.url}/v1/completions", json=body, timeout=limit) as response:
                    seen = f"{response.status}: {(await response.text())[:200]}"
                    if response.status == 200:
                        return
            except TimeoutError:
                seen = "a request without an answer"
            except aiohttp.ClientError as error:
                seen = str(error)
            await asyncio.sleep(POLL_SECONDS)
    raise UnavailableError(f"no answer within {seconds:g} s, at last {seen}; {last_words(process)}")


def last_words(process: Process) -> str:
    """The line of a log that most likely says why it ended: the last error, else the last line."""
    lines = [line.strip() for line in process.last_words(200).splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line]
    return (errors or lines or ["it said nothing"])[-1][:300]


def busy_seconds() -> float:
    """Processor time of everything on this machine since it started, and what its host took away."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = map(int, fields)
    return (user + nice + system + sum(interrupts_and_stolen)) / TICKS
