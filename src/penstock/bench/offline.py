"""Drive the engine in this process: continuous batching, and static batching to compare it with."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from penstock.bench.progress import Progress
from penstock.bench.statistics import Run, Timing, summarise
from penstock.bench.workloads import Job, Workload
from penstock.engine.request import EngineStats, Request, SamplingParams, TokenEvent
from penstock.errors import PenstockError


class Engine(Protocol):
    """What is driven: `engine.core.EngineCore`."""

    @property
    def has_work(self) -> bool: ...
    def submit(self, request: Request) -> None: ...
    def step(self) -> Sequence[TokenEvent]: ...
    def stats(self) -> EngineStats: ...


@dataclass(frozen=True, slots=True)
class Time:
    """The clock of a run, in seconds."""

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


class _Drive:
    """Requests in flight on one engine, and the times of their tokens."""

    def __init__(self, engine: Engine, clock: Time, progress: Progress | None) -> None:
        self._engine = engine
        self._clock = clock
        self._progress = progress or Progress()
        self.timings: dict[str, Timing] = {}

    def submit(self, name: str, job: Job, *, due: float | None = None, compute: int | None = None) -> bool:
        """Ask for `compute` tokens, of which only the job's own count; time counts from `due`.

        False where the engine refuses the request: that is its own failure, not the run's.
        """
        params = SamplingParams(max_tokens=compute or job.output_len, temperature=0.0, ignore_eos=True)
        # A request that is due in the middle of a step waits for the engine, not for a generator: no lag.
        sent = self._clock.now() if due is None else due
        timing = Timing(sent, wanted=job.output_len, input_tokens=len(job.prompt))
        self.timings[name] = timing
        try:
            self._engine.submit(Request(id=name, prompt=job.prompt, params=params))
        except PenstockError as error:
            timing.error, timing.ended = str(error), self._clock.now()
            self._progress.failed += 1
            return False
        self._progress.in_flight += 1
        return True

    def step(self) -> list[str]:
        """One step of the engine; the names of the requests that ended in it."""
        events = self._engine.step()
        now = self._clock.now()
        ended = []
        for event in events:
            timing = self.timings[event.request_id]
            counted = min(len(event.token_ids), timing.wanted - timing.output_tokens)
            if counted > 0:
                timing.tokens_at.append(now)
                timing.output_tokens += counted
                self._progress.tokens += counted
            timing.cached_tokens = max(timing.cached_tokens, event.cached_tokens)
            if event.finish_reason is not None:
                timing.ended = now
                timing.error = event.error or (
                    None if event.finish_reason == "length" else event.finish_reason
                )
                self._progress.in_flight -= 1
                self._progress.done += timing.outcome == "good"
                self._progress.failed += timing.outcome != "good"
                ended.append(event.request_id)
        return ended

    def cut_off(self) -> None:
        """Whatever has not ended will not."""
        for timing in self.timings.values():
            timing.cut_off = timing.ended is None


def run_continuous(
    engine: Engine,
    workload: Workload,
    jobs: Sequence[Job],
    *,
    repeat: int = 0,
    mode: str = "continuous",
    slo: Mapping[str, float] | None = None,
    clock: Time | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Requests join the batch as they are sent and leave it as they end; `stop` ends the run early."""
    clock = clock or Time()
    drive = _Drive(engine, clock, progress)
    waiting = deque(enumerate(jobs))
    room = workload.clients or len(jobs)
    before, start = engine.stats(), clock.now()
    while (waiting or engine.has_work) and not stop():
        while waiting and room:
            number, job = waiting[0]
            due = None if job.at is None else start + job.at
            if due is not None and due > clock.now():
                break
            waiting.popleft()
            room -= drive.submit(f"{mode}-{repeat}-{number}", job, due=due)
        if engine.has_work:
            room += len(drive.step())
        elif waiting:
            # Nothing runs, so the next is due later: in short naps, for `stop` is asked between them.
            clock.sleep(min(start + (waiting[0][1].at or 0.0) - clock.now(), 0.05))
    wall = clock.now() - start
    drive.cut_off()
    return summarise(
        list(drive.timings.values()),
        workload=workload.name,
        mode=mode,
        repeat=repeat,
        wall=wall,
        start=start,
        arrivals=workload.arrivals,
        rate=workload.offered_rate,
        concurrency=workload.clients,
        slo=slo,
        engine=engine_account(before, engine.stats()),
    )


def run_static(
    engine: Engine,
    workload: Workload,
    jobs: Sequence[Job],
    *,
    batch_size: int,
    repeat: int = 0,
    slo: Mapping[str, float] | None = None,
    clock: Time | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Groups of `batch_size`: none starts before the former has wholly ended, none of a group leaves early.

    Every request of a group is computed until the longest is done, as a batch of fixed shape
    is; the surplus tokens are not counted. Prompts are not padded, which favours this side.
    """
    if batch_size < 1:
        raise PenstockError(f"The batch size must be at least 1, got {batch_size}.")
    clock = clock or Time()
    drive = _Drive(engine, clock, progress)
    before, start = engine.stats(), clock.now()
    for first in range(0, len(jobs), batch_size):
        group = jobs[first : first + batch_size]
        longest = max(job.output_len for job in group)
        for number, job in enumerate(group, first):
            # All arrived at the start: a later group has been waiting for its turn.
            drive.submit(f"static-{repeat}-{number}", job, due=start, compute=longest)
        while engine.has_work and not stop():
            drive.step()
        if stop():
            break
    wall = clock.now() - start
    drive.cut_off()
    return summarise(
        list(drive.timings.values()),
        workload=workload.name,
        mode="static",
        repeat=repeat,
        wall=wall,
        start=start,
        slo=slo,
        engine=engine_account(before, engine.stats()),
    )


def warm_up(engine: Engine, *, vocab_size: int | None = None) -> None:
    """A few tokens, so that no run pays for what happens only once."""
    workload = Workload(name="warm-up", requests=2, input_len=(16, 16), output_len=(8, 8))
    run_continuous(engine, workload, workload.jobs(vocab_size=vocab_size))


def engine_account(before: EngineStats, after: EngineStats) -> dict[str, Any]:
    """What the engine counted between two looks at its statistics."""
    gauges = {"running", "waiting", "blocks_total", "blocks_free", "blocks_cached"}
    change = EngineStats(
        **{
            f.name: getattr(after, f.name) - getattr(before, f.name)
            for f in fields(EngineStats)
            if f.name not in gauges
        }
    )
    return {
        "steps": change.steps,
        "tokens_per_step": (change.prompt_tokens + change.generated_tokens) / change.steps
        if change.steps
        else 0.0,
        "kv_waste": change.kv_waste,
        "prefix_hit_rate": change.prefix_hits / change.prefix_queries if change.prefix_queries else 0.0,
        "preemptions": change.preemptions,
    }
