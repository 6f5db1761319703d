"""From runs to what is compared: medians, ranges, ratios to the best peer, and the bars for these. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from penstock.bench.statistics import Run

from .turns import OURS


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    scale: float  # from what a run has: seconds, bytes, tokens a second
    digits: int


RATE, MS, SECONDS, MB = Unit("tok/s", 1, 1), Unit("ms", 1e3, 0), Unit("s", 1, 2), Unit("MB", 1e-6, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One thing that is compared."""

    name: str
    title: str
    workload: str | None  # None: of a server's start
    better: Literal["more", "less"]
    unit: Unit
    bar: float
    moonshot: float | None
    of: Callable[[Run], float | None]
    relative: bool = True  # bar and moonshot are ratios (Penstock's by the best peer's); else in the unit

    def meets(self, value: float, wanted: float) -> bool:
        return value >= wanted if self.better == "more" else value <= wanted

    def shown(self, value: float) -> str:
        return f"{value * self.unit.scale:,.{self.unit.digits}f}"


def _figure(name: str, title: str, better: Literal["more", "less"], unit: Unit, **rest: Any) -> Figure:
    workload = title.split()[0]
    return Figure(name=name, title=title, workload=workload, better=better, unit=unit, **rest)


def _decode(run: Run) -> float | None:
    return run.decode_tokens_per_second


def _output(run: Run) -> float:
    return run.output_tokens_per_second


def _ttft(run: Run) -> float | None:
    return run.ttft.p50


def _memory(run: Run) -> float | None:
    return run.peak_memory_bytes


FIGURES = (
    _figure("w1_decode", "W1 decode", "more", RATE, bar=1, moonshot=1.5, of=_decode),
    _figure("w1_ttft", "W1 TTFT p50", "less", MS, bar=0.5, moonshot=0.3, of=_ttft),
    _figure("w2_output", "W2 output", "more", RATE, bar=2, moonshot=3, of=_output),
    _figure("w3_output", "W3 output", "more", RATE, bar=2, moonshot=3, of=_output),
    _figure("w3_ttft", "W3 TTFT p50", "less", MS, bar=0.4, moonshot=None, of=_ttft),
    _figure("w4_wall", "W4 wall", "less", SECONDS, bar=0.5, moonshot=0.3, of=lambda run: run.wall_seconds),
    _figure("memory", "W3 peak memory", "less", MB, bar=1200, moonshot=700, of=_memory, relative=False),
)
START = Figure(
    name="start",
    title="start to first answer",
    workload=None,
    better="less",
    unit=SECONDS,
    bar=5,
    moonshot=2.5,
    of=lambda run: run.startup_seconds,
    relative=False,
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one server."""

    system: str
    run: Run
    others: float = 0.0  # cores that neither the server nor the load generator used, on average

    @property
    def problem(self) -> str | None:
        """Why this run counts in no median: only runs whose answers are all whole are compared."""
        run = self.run
        if run.completed == run.requests:
            return None
        counts = {"failed": run.errors, "hung": run.timeouts, "short": run.short, "cut off": run.unfinished}
        said = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        why = f" ({run.first_error})" if run.first_error else ""
        return f"{run.workload}, repeat {run.repeat + 1}: of {run.requests} answers {said}{why}"


def spread(values: Iterable[float | None]) -> Spread | None:
    numbers = [value for value in values if value is not None]
    return Spread(median(numbers), min(numbers), max(numbers), len(numbers)) if numbers else None


def whole(measured: Iterable[Measured], system: str, workload: str) -> list[Run]:
    return [
        each.run
        for each in measured
        if each.system == system and each.run.workload == workload and each.problem is None
    ]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure over all systems."""

    figure: Figure
    values: dict[str, Spread]  # by system, with Penstock if it was measured
    best: str | None  # the best peer

    @property
    def ratio(self) -> float | None:
        if self.best is None or OURS not in self.values or not self.values[self.best].median:
            return None
        return self.values[OURS].median / self.values[self.best].median

    def reaches(self, wanted: float) -> bool | None:
        if self.figure.relative:
            return None if self.ratio is None else self.figure.meets(self.ratio, wanted)
        ours = self.values.get(OURS)
        return None if ours is None else self.figure.meets(ours.median * self.figure.unit.scale, wanted)


def compare(systems: Sequence[str], measured: Sequence[Measured]) -> list[Comparison]:
    """Every figure that something was measured of."""
    found = []
    for figure in (*FIGURES, START):
        values = {}
        for system in systems:
            runs = [run for name in _workloads(figure, measured) for run in whole(measured, system, name)]
            if (each := spread(map(figure.of, runs))) is not None:
                values[system] = each
        peers = [system for system in values if system != OURS]
        pick = max if figure.better == "more" else min
        best = pick(peers, key=lambda system: values[system].median) if peers else None
        if values:
            found.append(Comparison(figure, values, best))
    return found


def _workloads(figure: Figure, measured: Sequence[Measured]) -> list[str]:
    if figure.workload is not None:
        return [figure.workload]
    return list(dict.fromkeys(each.run.workload for each in measured))
