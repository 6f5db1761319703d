"""The figures of a run that are set beside each other: name, unit, and which way is better. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from penstock.bench.statistics import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str  # in JSON
    label: str  # for people, with the unit
    of: Callable[[Run], float | None]  # in the unit of the label
    higher_is_better: bool = False
    decides: bool = False  # looked at by --fail-if-worse


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One figure over the repeats of one run. The median is of this figure alone."""

    median: float
    min: float
    max: float
    repeats: int

    @property
    def share(self) -> float:
        """Half the range, as a share of the median."""
        return (self.max - self.min) / 2 / self.median if self.median else 0.0


def _milliseconds(metric: str, quantile: str) -> Callable[[Run], float | None]:
    def of(run: Run) -> float | None:
        seconds = getattr(getattr(run, metric), quantile)
        return None if seconds is None else seconds * 1000

    return of


def failed(run: Run) -> int:
    """Requests that gave no good result: each kind is counted apart in the tables."""
    return run.errors + run.timeouts + run.short


FIGURES = (
    Figure(
        name="output_tokens_per_second",
        label="output tok/s",
        of=lambda run: run.output_tokens_per_second,
        higher_is_better=True,
        decides=True,
    ),
    Figure(
        name="input_tokens_per_second",
        label="input tok/s",
        of=lambda run: run.input_tokens_per_second,
        higher_is_better=True,
    ),
    Figure(
        name="requests_per_second",
        label="requests/s",
        of=lambda run: run.requests_per_second,
        higher_is_better=True,
    ),
    Figure(
        name="decode_tokens_per_second",
        label="decode tok/s",
        of=lambda run: run.decode_tokens_per_second,
        higher_is_better=True,
        decides=True,
    ),
    Figure(
        name="goodput_requests_per_second",
        label="goodput, req/s",
        of=lambda run: run.goodput.requests_per_second if run.goodput else None,
        higher_is_better=True,
        decides=True,
    ),
    Figure(name="ttft_p50", label="TTFT p50, ms", of=_milliseconds("ttft", "p50"), decides=True),
    Figure(name="ttft_p99", label="TTFT p99, ms", of=_milliseconds("ttft", "p99")),
    Figure(name="itl_p50", label="ITL p50, ms", of=_milliseconds("itl", "p50")),
    Figure(name="itl_p99", label="ITL p99, ms", of=_milliseconds("itl", "p99")),
    Figure(name="tpot_p50", label="TPOT p50, ms", of=_milliseconds("tpot", "p50")),
    Figure(name="e2e_p50", label="end to end p50, ms", of=_milliseconds("e2e", "p50"), decides=True),
    Figure(name="e2e_p99", label="end to end p99, ms", of=_milliseconds("e2e", "p99")),
    Figure(name="wall_seconds", label="wall, s", of=lambda run: run.wall_seconds),
    Figure(
        name="peak_memory_mb",
        label="peak memory, MB",
        of=lambda run: None if run.peak_memory_bytes is None else run.peak_memory_bytes / 1e6,
    ),
    Figure(name="startup_seconds", label="start-up, s", of=lambda run: run.startup_seconds),
    Figure(name="failed", label="failed or short", of=failed, decides=True),
)


def spread(figure: Figure, runs: Sequence[Run]) -> Spread | None:
    """None where no run has the figure."""
    return spread_of(map(figure.of, runs))


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Of those that are there; None where none is."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    return Spread(median=median(found), min=min(found), max=max(found), repeats=len(found))


def grouped(runs: Sequence[Run]) -> list[list[Run]]:
    """The repeats of each run together, in the order they came."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(identity(run), []).append(run)
    return list(groups.values())


def identity(run: Run) -> tuple[object, ...]:
    """What was measured: two runs with the same identity are repeats of each other."""
    return run.workload, run.mode, run.arrivals, run.rate, run.concurrency


def load(run: Run) -> str:
    """How requests came, in words."""
    if run.rate is not None:
        return f"{run.rate:g}/s {run.arrivals}"
    if run.concurrency is not None:
        return f"{run.concurrency} client{'' if run.concurrency == 1 else 's'}"
    return run.arrivals
