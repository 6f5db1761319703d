"""Drive any OpenAI-compatible server over HTTP, streaming, as its users do.

Closed loop: each client sends its next request when its last answer is over. Open loop: requests
go out at their moments, whatever became of the former, and their latency counts from that moment.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from penstock.bench.answer import Answer
from penstock.bench.connection import LINGER_SECONDS, Connection, Dialer
from penstock.bench.progress import Progress
from penstock.bench.statistics import Run, Timing, summarise
from penstock.bench.target import Target
from penstock.bench.workloads import Job, Workload

TICK_SECONDS = 0.25  # between looks at who hangs, and whether to stop
SPARE_FILES = 64  # beside one for each connection


async def run_online(
    target: Target,
    workload: Workload,
    jobs: Sequence[Job],
    *,
    repeat: int = 0,
    mode: str = "online",
    slo: Mapping[str, float] | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Run:
    """`stop` ends the run early: what was measured until then is given, the rest counts as unfinished."""
    load = _Load(target, progress or Progress(), stop)
    _allow_connections(len(jobs))
    cpu, start = time.process_time(), time.perf_counter()
    await load.run(jobs, workload.clients or len(jobs))
    # A connection may be kept for the end of a response whose answer is over: that is no part of the run.
    now = time.perf_counter()
    last = max((now if timing.ended is None else timing.ended for timing in load.timings), default=now)
    return summarise(
        load.timings,
        workload=workload.name,
        mode=mode,
        repeat=repeat,
        wall=last - start,
        start=start,
        arrivals=workload.arrivals,
        rate=workload.offered_rate,
        concurrency=workload.clients,
        slo=slo,
        client_cpu=time.process_time() - cpu,
    )


class _Load:
    """Requests in flight to one server."""

    def __init__(self, target: Target, progress: Progress, stop: Callable[[], bool]) -> None:
        self._target = target
        self._dialer = Dialer(target)
        self._progress = progress
        self._stop = stop
        self._idle: list[Connection] = []
        self._under_way: dict[Connection, tuple[float, Answer]] = {}  # since when
        self.timings: list[Timing] = []

    async def run(self, jobs: Sequence[Job], clients: int) -> None:
        is_open = any(job.at is not None for job in jobs)
        work = asyncio.ensure_future(self._open(jobs) if is_open else self._closed(jobs, clients))
        watch = asyncio.ensure_future(self._watch(work))
        try:
            await asyncio.wait([work])
            if not work.cancelled():
                work.result()
        finally:
            watch.cancel()
            work.cancel()
            await asyncio.gather(watch, work, return_exceptions=True)
            for connection in [*self._idle, *self._under_way]:
                connection.close()

    async def _closed(self, jobs: Sequence[Job], clients: int) -> None:
        waiting = deque(jobs)

        async def client() -> None:
            while waiting:
                await self._ask(waiting.popleft(), None)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(clients, len(jobs))):
                group.create_task(client())

    async def _open(self, jobs: Sequence[Job]) -> None:
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                due = start + (job.at or 0.0)
                if (early := due - time.perf_counter()) > 0:
                    await asyncio.sleep(early)
                group.create_task(self._ask(job, due))

    async def _ask(self, job: Job, due: float | None) -> None:
        now = time.perf_counter()
        timing = Timing(
            now if due is None else due,
            wanted=job.output_len,
            input_tokens=len(job.prompt),
            exact=self._target.ignore_eos,
            lag=0.0 if due is None else max(now - due, 0.0),
        )
        self.timings.append(timing)
        self._progress.in_flight += 1
        try:
            await self._exchange(self._dialer.request(job), timing)
            timing.ended = timing.ended or time.perf_counter()
        except asyncio.CancelledError:
            timing.cut_off = True
            raise
        finally:
            self._progress.in_flight -= 1
            self._progress.done += timing.outcome == "good"
            self._progress.failed += timing.outcome in ("error", "timeout", "short")

    async def _exchange(self, request: bytes, timing: Timing) -> None:
        """On a connection that is open already, if there is one; if just that one was closed, on another."""
        while True:
            kept = self._take_idle()
            try:
                connection = kept or await self._connect()
            except TimeoutError:
                timing.timed_out, timing.error = True, f"No connection to {self._target.url} in time."
                return
            except (OSError, ValueError) as error:  # a name that cannot be one is a ValueError
                timing.error = f"No connection to {self._target.url}: {error}."
                return
            answer = Answer(timing, self._progress, time.perf_counter())
            self._under_way[connection] = answer.last, answer
            try:
                await connection.ask(request, answer)
            finally:
                del self._under_way[connection]
                if connection.usable:
                    self._idle.append(connection)
            if kept is None or connection.heard or timing.timed_out:
                return
            timing.error = timing.ended = None

    def _take_idle(self) -> Connection | None:
        while self._idle:
            if (connection := self._idle.pop()).usable:
                return connection
        return None

    async def _connect(self) -> Connection:
        async with asyncio.timeout(min(self._target.timeout, self._target.stall_timeout)):
            return await self._dialer.connect()

    async def _watch(self, work: asyncio.Future[None]) -> None:
        """One look at all requests now and then, rather than a timer for each chunk."""
        limit, stall = self._target.timeout, self._target.stall_timeout
        tick = min(TICK_SECONDS, limit / 4, stall / 4)
        while True:
            await asyncio.sleep(tick)
            if self._stop():
                work.cancel()
                return
            now = time.perf_counter()
            for connection, (since, answer) in [*self._under_way.items()]:
                if answer.done and now - (answer.timing.ended or now) > LINGER_SECONDS:
                    connection.give_up("")
                elif now - since > limit:
                    connection.give_up(f"No answer within {limit:g} s.")
                elif now - answer.last > stall:
                    connection.give_up(f"No token for {stall:g} s.")


def _allow_connections(count: int) -> None:
    """Many systems allow a process 1,024 files until it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
