"""From the times of single requests to the figures of a run. Pure; seconds in, seconds out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from penstock.bench.slo import meets

# good: complete and of the length asked for; short: complete, of another length; unfinished: cut off by
# the person who measures. Only good answers count in any rate or latency.
Outcome = Literal["good", "short", "error", "timeout", "unfinished"]


@dataclass(slots=True)
class Timing:
    """What one request did, on one clock. `tokens_at` has the time of each chunk of output tokens."""

    sent: float  # when it was due: in an open loop the schedule's moment, late or not
    wanted: int
    input_tokens: int
    tokens_at: list[float] = field(default_factory=list)
    output_tokens: int = 0
    cached_tokens: int = 0
    ended: float | None = None
    error: str | None = None
    timed_out: bool = False
    cut_off: bool = False  # by the person who measures
    exact: bool = True  # whether `wanted` is asked for, or only the most that is allowed
    lag: float = 0.0  # seconds the generator itself was late

    @property
    def outcome(self) -> Outcome:
        if self.cut_off:
            return "unfinished"
        if self.timed_out:
            return "timeout"
        if self.error is not None or not self.tokens_at:
            return "error"
        if self.output_tokens != self.wanted and (self.exact or self.output_tokens > self.wanted):
            return "short"
        return "good"

    @property
    def ttft(self) -> float | None:
        return self.tokens_at[0] - self.sent if self.tokens_at else None

    @property
    def tpot(self) -> float | None:
        """Tokens, not chunks: a chunk may carry several."""
        if self.output_tokens < 2 or len(self.tokens_at) < 2:
            return None
        return (self.tokens_at[-1] - self.tokens_at[0]) / (self.output_tokens - 1)

    @property
    def e2e(self) -> float | None:
        last = self.ended if self.ended is not None or not self.tokens_at else self.tokens_at[-1]
        return None if last is None else last - self.sent


@dataclass(frozen=True, slots=True)
class Distribution:
    """Seconds. All None when nothing was measured."""

    count: int
    mean: float | None
    min: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    max: float | None
    curve: tuple[float, ...]  # 101 values, of the quantiles 0 to 100 %; empty when nothing was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """What kept every limit of an SLO; rates are over the whole run."""

    slo: dict[str, float]  # seconds by metric
    good: int
    share: float  # of all requests that ended
    requests_per_second: float
    tokens_per_second: float  # output


@dataclass(frozen=True, slots=True)
class Sample:
    """One request; seconds, `sent` since the run's start and the others since `sent`."""

    sent: float
    ttft: float | None
    e2e: float | None
    input_tokens: int
    output_tokens: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The figures of one run of one workload. Rates and latencies are of good answers alone."""

    workload: str
    mode: str  # "continuous", "static", "online" or "sweep"
    repeat: int
    arrivals: str = "at once"  # or "closed", "constant", "poisson", "burst", "trace"
    rate: float | None = None  # requests/s offered (open loop)
    concurrency: int | None = None  # clients (closed loop)
    requests: int  # the sum of the next five
    completed: int  # complete, and of the length asked for
    errors: int
    timeouts: int
    short: int  # answers with another number of tokens than was asked for
    unfinished: int
    wall_seconds: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    input_tokens_per_second: float
    output_tokens_per_second: float
    requests_per_second: float
    decode_tokens_per_second: float | None  # of one answer after its first token, the median over answers
    ttft: Distribution  # until the first token
    itl: Distribution  # between two tokens of one answer, all answers pooled
    tpot: Distribution  # mean time of a token after the first, one figure for each answer
    e2e: Distribution  # until the end of the answer
    goodput: Goodput | None = None
    schedule_lag: Distribution | None = None  # how late the generator itself was (open loop)
    client_cpu_seconds: float | None = None  # spent by the generator
    peak_memory_bytes: int | None = None  # of the server's process tree, or offline of this process
    startup_seconds: float | None = None
    first_error: str | None = None
    warnings: list[str] = field(default_factory=list)  # why the figures may not be the server's
    engine: dict[str, Any] | None = None  # what the engine says of itself, offline only
    samples: list[Sample] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Linear between the two nearest ranks; None of nothing."""
    return _ranked(sorted(values), percent) if values else None


def distribution(values: Iterable[float]) -> Distribution:
    ordered = sorted(values)
    if not ordered:
        return Distribution(0, None, None, None, None, None, None, None, ())
    curve = tuple(_ranked(ordered, percent) for percent in range(101))
    mean = sum(ordered) / len(ordered)
    return Distribution(
        len(ordered), mean, curve[0], curve[50], curve[90], curve[95], curve[99], curve[100], curve
    )


def summarise(
    timings: Sequence[Timing],
    *,
    workload: str,
    mode: str,
    repeat: int,
    wall: float,
    start: float | None = None,
    arrivals: str = "at once",
    rate: float | None = None,
    concurrency: int | None = None,
    slo: Mapping[str, float] | None = None,
    client_cpu: float | None = None,
    engine: dict[str, Any] | None = None,
) -> Run:
    """`start` is the moment of the run's begin on the clock of the timings, by default its first request."""
    counts = Counter(timing.outcome for timing in timings)
    good = [timing for timing in timings if timing.outcome == "good"]
    failed = [timing for timing in timings if timing.outcome in ("error", "timeout")]
    origin = min((timing.sent for timing in timings), default=0.0) if start is None else start
    wall = max(wall, 1e-9)  # a run cut off at once is no division by zero
    output_tokens = sum(timing.output_tokens for timing in good)
    input_tokens = sum(timing.input_tokens for timing in good)
    gaps = [later - sooner for t in good for sooner, later in zip(t.tokens_at, t.tokens_at[1:], strict=False)]
    per_token = [timing.tpot for timing in good if timing.tpot is not None]
    per_token_median = percentile(per_token, 50)
    lag = distribution(timing.lag for timing in timings) if rate is not None else None
    return Run(
        workload=workload,
        mode=mode,
        repeat=repeat,
        arrivals=arrivals,
        rate=rate,
        concurrency=concurrency,
        requests=len(timings),
        completed=counts["good"],
        errors=counts["error"],
        timeouts=counts["timeout"],
        short=counts["short"],
        unfinished=counts["unfinished"],
        wall_seconds=wall,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=sum(timing.cached_tokens for timing in good),
        input_tokens_per_second=input_tokens / wall,
        output_tokens_per_second=output_tokens / wall,
        requests_per_second=len(good) / wall,
        decode_tokens_per_second=1 / per_token_median if per_token_median else None,
        ttft=distribution(timing.tokens_at[0] - timing.sent for timing in good),
        itl=distribution(gaps),
        tpot=distribution(per_token),
        e2e=distribution(timing.e2e for timing in good if timing.e2e is not None),
        goodput=_goodput(good, slo, len(timings) - counts["unfinished"], wall) if slo else None,
        schedule_lag=lag,
        client_cpu_seconds=client_cpu,
        first_error=next((timing.error or "The answer had no tokens." for timing in failed), None),
        warnings=_doubts(lag, client_cpu, wall),
        engine=engine,
        samples=[
            Sample(t.sent - origin, t.ttft, t.e2e, t.input_tokens, t.output_tokens, t.outcome)
            for t in sorted(timings, key=lambda timing: timing.sent)
        ],
    )


def median_run(runs: Sequence[Run]) -> Run:
    """The run in the middle by throughput: a real run, so that its figures belong together."""
    return sorted(runs, key=lambda run: run.output_tokens_per_second)[(len(runs) - 1) // 2]


LATE_SECONDS = 0.05  # a request sent later than this after its moment is not the load that was asked for
BUSY_SHARE = 0.8  # of one core: beyond it the generator, which has one, is what is measured


def _doubts(lag: Distribution | None, client_cpu: float | None, wall: float) -> list[str]:
    doubts = []
    if lag is not None and lag.p99 is not None and lag.p99 > LATE_SECONDS:
        doubts.append(
            f"The load generator was late: 1% of the requests were sent {lag.p99 * 1000:.0f} ms or more "
            "after their moment. Latencies count from that moment, so they include the delay; lower the rate "
            "or generate the load on another machine."
        )
    if client_cpu is not None and client_cpu > BUSY_SHARE * wall and wall > 0.5:
        doubts.append(
            f"The load generator used {client_cpu / wall:.0%} of a core and may have been the bottleneck; "
            "the server may be faster than this shows."
        )
    return doubts


def _goodput(good: Sequence[Timing], slo: Mapping[str, float], ended: int, wall: float) -> Goodput:
    kept = [
        timing
        for timing in good
        if meets(slo, ttft=timing.ttft or 0.0, tpot=timing.tpot, e2e=timing.e2e or 0.0)
    ]
    return Goodput(
        slo=dict(slo),
        good=len(kept),
        share=len(kept) / ended if ended else 0.0,
        requests_per_second=len(kept) / wall,
        tokens_per_second=sum(timing.output_tokens for timing in kept) / wall,
    )


def _ranked(ordered: Sequence[float], percent: float) -> float:
    rank = (len(ordered) - 1) * percent / 100
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)
