"""From the times of single requests to the figures of a run. Pure; seconds in, seconds out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Timing:
    """What one request did, on one clock. `tokens_at` has the time of each chunk of output tokens."""

    sent: float
    wanted: int
    input_tokens: int
    tokens_at: list[float] = field(default_factory=list)
    output_tokens: int = 0
    cached_tokens: int = 0
    ended: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Distribution:
    """Seconds. All None when nothing was measured."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The figures of one run of one workload."""

    workload: str
    mode: str  # "continuous", "static" or "online"
    repeat: int
    requests: int
    errors: int
    short: int  # answers with another number of tokens than was asked for
    wall_seconds: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    input_tokens_per_second: float
    output_tokens_per_second: float
    requests_per_second: float
    ttft: Distribution  # until the first token
    itl: Distribution  # between two tokens of one answer, all answers pooled
    tpot: Distribution  # mean time of a token after the first, one figure for each answer
    e2e: Distribution  # until the last token
    first_error: str | None = None
    engine: dict[str, Any] | None = None  # what the engine says of itself, offline only

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Linear between the two nearest ranks; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def distribution(values: Iterable[float]) -> Distribution:
    numbers = list(values)
    mean = sum(numbers) / len(numbers) if numbers else None
    return Distribution(mean, *(percentile(numbers, percent) for percent in (50, 95, 99)))


def summarise(
    timings: Sequence[Timing],
    *,
    workload: str,
    mode: str,
    repeat: int,
    wall: float,
    engine: dict[str, Any] | None = None,
) -> Run:
    done = [timing for timing in timings if timing.error is None and timing.tokens_at]
    failed = [timing for timing in timings if timing.error is not None or not timing.tokens_at]
    output_tokens = sum(timing.output_tokens for timing in done)
    input_tokens = sum(timing.input_tokens for timing in done)
    gaps = [later - sooner for t in done for sooner, later in zip(t.tokens_at, t.tokens_at[1:], strict=False)]
    per_token = [
        (t.tokens_at[-1] - t.tokens_at[0]) / (t.output_tokens - 1)
        for t in done
        if t.output_tokens > 1 and len(t.tokens_at) > 1
    ]
    return Run(
        workload=workload,
        mode=mode,
        repeat=repeat,
        requests=len(timings),
        errors=len(failed),
        short=sum(timing.output_tokens != timing.wanted for timing in done),
        wall_seconds=wall,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=sum(timing.cached_tokens for timing in done),
        input_tokens_per_second=input_tokens / wall,
        output_tokens_per_second=output_tokens / wall,
        requests_per_second=len(done) / wall,
        ttft=distribution(timing.tokens_at[0] - timing.sent for timing in done),
        itl=distribution(gaps),
        tpot=distribution(per_token),
        e2e=distribution((timing.ended or timing.tokens_at[-1]) - timing.sent for timing in done),
        first_error=next((timing.error or "The answer had no tokens." for timing in failed), None),
        engine=engine,
    )


def median_run(runs: Sequence[Run]) -> Run:
    """The run in the middle by throughput: a real run, so that its figures belong together."""
    return sorted(runs, key=lambda run: run.output_tokens_per_second)[(len(runs) - 1) // 2]
