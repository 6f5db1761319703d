"""Drive the engine in this process: continuous batching, and static batching to compare it with."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Protocol

from penstock.bench.statistics import Run, Timing, summarise
from penstock.bench.workloads import Job, Workload
from penstock.engine.request import EngineStats, Request, SamplingParams, TokenEvent
from penstock.errors import PenstockError

Progress = Callable[[int], None]  # called with the number of wanted tokens that just came


class Engine(Protocol):
    """What is driven: `engine.core.EngineCore`."""

    @property
    def has_work(self) -> bool: ...
    def submit(self, request: Request) -> None: ...
    def step(self) -> Sequence[TokenEvent]: ...
    def stats(self) -> EngineStats: ...


class _Drive:
    """Requests in flight on one engine, and the times of their tokens."""

    def __init__(self, engine: Engine, clock: Callable[[], float], progress: Progress) -> None:
        self._engine = engine
        self._clock = clock
        self._progress = progress
        self.timings: dict[str, Timing] = {}

    def submit(self, name: str, job: Job, *, compute: int | None = None) -> None:
        """Ask for `compute` tokens, of which only the job's own count."""
        params = SamplingParams(max_tokens=compute or job.output_len, temperature=0.0, ignore_eos=True)
        self.timings[name] = Timing(self._clock(), wanted=job.output_len, input_tokens=len(job.prompt))
        self._engine.submit(Request(id=name, prompt=job.prompt, params=params))

    def step(self) -> list[str]:
        """One step of the engine; the names of the requests that ended in it."""
        events = self._engine.step()
        now = self._clock()
        ended = []
        for event in events:
            timing = self.timings[event.request_id]
            counted = min(len(event.token_ids), timing.wanted - timing.output_tokens)
            if counted > 0:
                timing.tokens_at.append(now)
                timing.output_tokens += counted
                self._progress(counted)
            timing.cached_tokens = max(timing.cached_tokens, event.cached_tokens)
            if event.finish_reason is not None:
                timing.ended = now
                timing.error = event.error or (
                    None if event.finish_reason == "length" else event.finish_reason
                )
                ended.append(event.request_id)
        return ended


def run_continuous(
    engine: Engine,
    workload: Workload,
    jobs: Sequence[Job],
    *,
    repeat: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress = lambda _: None,
) -> Run:
    """Requests join the batch as they are sent and leave it as they end."""
    drive = _Drive(engine, clock, progress)
    waiting = deque(enumerate(jobs))
    room = workload.clients or len(jobs)
    before, start = engine.stats(), clock()
    while waiting or engine.has_work:
        while waiting and room:
            number, job = waiting.popleft()
            drive.submit(f"continuous-{repeat}-{number}", job)
            room -= 1
        room += len(drive.step())
    wall = clock() - start
    account = engine_account(before, engine.stats())
    return summarise(
        list(drive.timings.values()),
        workload=workload.name,
        mode="continuous",
        repeat=repeat,
        wall=wall,
        engine=account,
    )


def run_static(
    engine: Engine,
    workload: Workload,
    jobs: Sequence[Job],
    *,
    batch_size: int,
    repeat: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress = lambda _: None,
) -> Run:
    """Groups of `batch_size`: none starts before the former has wholly ended, none of a group leaves early.

    Every request of a group is computed until the longest is done, as a batch of fixed shape
    is; the surplus tokens are not counted. Prompts are not padded, which favours this side.
    """
    if batch_size < 1:
        raise PenstockError(f"The batch size must be at least 1, got {batch_size}.")
    drive = _Drive(engine, clock, progress)
    before, start = engine.stats(), clock()
    for first in range(0, len(jobs), batch_size):
        group = jobs[first : first + batch_size]
        longest = max(job.output_len for job in group)
        for number, job in enumerate(group, first):
            drive.submit(f"static-{repeat}-{number}", job, compute=longest)
            # All arrived at the start: a later group has been waiting for its turn.
            drive.timings[f"static-{repeat}-{number}"].sent = start
        while engine.has_work:
            drive.step()
    wall = clock() - start
    account = engine_account(before, engine.stats())
    return summarise(
        list(drive.timings.values()),
        workload=workload.name,
        mode="static",
        repeat=repeat,
        wall=wall,
        engine=account,
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
