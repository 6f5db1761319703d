"""Requests through an engine's own loop, as everything else drives it: submit, then step until done."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.engine.core import EngineCore
from penstock.engine.request import Request

from .workloads import Job, Workload


@dataclass(slots=True)
class Drive:
    """Seconds from the submission of the first request, and the tokens that came by then."""

    wall: float = 0.0
    tokens: int = 0
    cached: int = 0  # prompt tokens that were taken from the prefix cache
    times: list[float] = field(default_factory=list)  # of steps that gave tokens


def drive(core: EngineCore, requests: Sequence[Request]) -> Drive:
    """All at once. Raises RuntimeError if one of them ends with an error."""
    found = Drive()
    began = time.perf_counter()
    for request in requests:
        core.submit(request)
    while core.has_work:
        events = core.step()
        if events:
            found.times.append(time.perf_counter() - began)
        for event in events:  # as little as can be: the engine waits for it
            found.tokens += len(event.token_ids)
            if event.finish_reason is not None:
                if event.error is not None:
                    raise RuntimeError(f"The request {event.request_id} failed: {event.error}")
                found.cached += event.cached_tokens
    found.wall = time.perf_counter() - began
    return found


def figure(workload: Workload, found: Drive) -> float:
    """What the workload is about, in its unit."""
    if workload.unit == "ms a token":
        return 1000 * (found.times[-1] - found.times[0]) / (found.tokens - 1)
    if workload.unit == "prompt tok/s":
        return workload.prompt_tokens / found.wall
    return found.tokens / found.wall


@dataclass(frozen=True, slots=True)
class Baseline:
    """A way of serving without continuous batching, on the same engine."""

    name: str
    tokens_per_second: float  # of output that somebody asked for
    measured: int  # requests, of all of the workload
    seconds: float
    how: str


def static_batches(core: EngineCore, workload: Workload, size: int, *, seconds: float, salt: str) -> Baseline:
    """Groups of `size` in the order of arrival: prompts filled up to the longest of the group, everybody
    computed until the longest answer ends, nobody joins. What was computed beyond a request's own length does
    not count. Groups are measured until `seconds` have passed, and stand for all.
    """
    jobs = workload.jobs
    measured, counted, spent = 0, 0, 0.0
    for start in range(0, len(jobs), size):
        group = jobs[start : start + size]
        padded = Job(max(job.prompt for job in group), max(job.output for job in group))
        requests = workload.requests(
            core.info.vocab_size, salt=f"{salt}-static-{size}-{start}", jobs=(padded,) * len(group)
        )
        spent += drive(core, requests).wall
        measured += len(group)
        counted += sum(job.output for job in group)
        if spent > seconds:
            break
    how = f"groups of {size} in order, padded to the longest prompt and answer of the group"
    return Baseline(f"static batches of {size}", counted / spent, measured, spent, how)


def one_at_a_time(core: EngineCore, workload: Workload, *, seconds: float, salt: str) -> Baseline:
    """Requests one after another, from the first on until `seconds` have passed; these stand for all."""
    requests = workload.requests(core.info.vocab_size, salt=f"{salt}-alone")
    measured, counted, spent = 0, 0, 0.0
    for request in requests:
        found = drive(core, [request])
        measured, counted, spent = measured + 1, counted + found.tokens, spent + found.wall
        if spent > seconds:
            break
    return Baseline("one at a time", counted / spent, measured, spent, "each alone, in order")


def first_token(core: EngineCore, vocabulary: int) -> float:
    """Seconds until a prompt of 16 tokens has its first token."""
    workload = Workload("start", "one short prompt", "s", (Job(16, 1),))
    return drive(core, workload.requests(vocabulary, salt="0")).wall
