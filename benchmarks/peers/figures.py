"""From runs to what is compared: medians, ranges, ratios to the best peer, and the bars for these. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.bench.figures import Spread, spread_of
from penstock.bench.statistics import Run

from .turns import OURS


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    scale: float  # from what a run has: seconds, bytes, tokens a second
    digits: int


RATE, MS, SECONDS, MB = Unit("tok/s", 1, 1), Unit("ms", 1e3, 0), Unit("s", 1, 2), Unit("MB", 1e-6, 0)


@dataclass(frozen=True, slots=True)
class Stated:
    """A figure that was measured before, elsewhere; in what a run has."""

    value: float
    whose: str


LLAMACPP_NATIVE, VLLM = "native llama.cpp, Q4_0", "vLLM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One thing that is compared, and what Penstock should come to."""

    name: str
    title: str
    workload: str | None  # None: of a server's start
    better: Literal["more", "less"]
    unit: Unit
    bar: float
    moonshot: float | None
    of: Callable[[Run], float | None]
    stated: Stated | None = None  # None: bar and moonshot are in the unit; else ratios to a peer's figure

    @property
    def relative(self) -> bool:
        return self.stated is not None

    def meets(self, value: float, wanted: float) -> bool:
        return value >= wanted if self.better == "more" else value <= wanted


def _goal(name: str, title: str, better: Literal["more", "less"], unit: Unit, **rest: Any) -> Goal:
    return Goal(name=name, title=title, workload=title.split()[0], better=better, unit=unit, **rest)


def _decode(run: Run) -> float | None:
    return run.decode_tokens_per_second


def _output(run: Run) -> float:
    return run.output_tokens_per_second


def _ttft(run: Run) -> float | None:
    return run.ttft.p50


def _memory(run: Run) -> float | None:
    return run.peak_memory_bytes


def _wall(run: Run) -> float:
    return run.wall_seconds


# The best of any peer, on two cores with AVX-512 VNNI.
W1_DECODE = Stated(140.0, LLAMACPP_NATIVE)
W1_TTFT = Stated(0.134, VLLM)
W2_OUTPUT = Stated(292.0, VLLM)
W3_OUTPUT = Stated(192.0, VLLM)
W3_TTFT = Stated(1.7, VLLM)
W4_WALL = Stated(4.1, VLLM)
MEMORY = "memory"
GOALS = (
    _goal("w1_decode", "W1 decode", "more", RATE, bar=1, moonshot=1.5, of=_decode, stated=W1_DECODE),
    _goal("w1_ttft", "W1 TTFT p50", "less", MS, bar=0.5, moonshot=0.3, of=_ttft, stated=W1_TTFT),
    _goal("w2_output", "W2 output", "more", RATE, bar=2, moonshot=3, of=_output, stated=W2_OUTPUT),
    _goal("w3_output", "W3 output", "more", RATE, bar=2, moonshot=3, of=_output, stated=W3_OUTPUT),
    _goal("w3_ttft", "W3 TTFT p50", "less", MS, bar=0.4, moonshot=None, of=_ttft, stated=W3_TTFT),
    _goal("w4_wall", "W4 wall", "less", SECONDS, bar=0.5, moonshot=0.3, of=_wall, stated=W4_WALL),
    _goal(MEMORY, "W3 peak memory", "less", MB, bar=1200, moonshot=700, of=_memory),
)
START = Goal(
    name="start",
    title="start to first answer",
    workload=None,
    better="less",
    unit=SECONDS,
    bar=5,
    moonshot=2.5,
    of=lambda run: run.startup_seconds,
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


def whole(measured: Iterable[Measured], system: str, workload: str) -> list[Run]:
    return [
        each.run
        for each in measured
        if each.system == system and each.run.workload == workload and each.problem is None
    ]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One goal over all systems. A ratio is Penstock's figure by the other's."""

    goal: Goal
    values: dict[str, Spread]  # by system, with Penstock if it was measured
    best: str | None  # the best peer

    @property
    def ratio(self) -> float | None:
        """To the best peer of the run."""
        return self._to(self.values[self.best].median) if self.best else None

    @property
    def stated_ratio(self) -> float | None:
        """To the figure that is stated; where none is, to the bar."""
        stated = self.goal.stated
        return self._to(self.goal.bar / self.goal.unit.scale if stated is None else stated.value)

    def reaches(self, wanted: float | None, *, stated: bool = False) -> bool | None:
        """Beside the best peer of the run, or beside what is stated. None: nothing to tell by."""
        if wanted is None:
            return None
        if self.goal.relative:
            ratio = self.stated_ratio if stated else self.ratio
            return None if ratio is None else self.goal.meets(ratio, wanted)
        ours = self.values.get(OURS)
        return None if ours is None else self.goal.meets(ours.median * self.goal.unit.scale, wanted)

    def _to(self, other: float) -> float | None:
        ours = self.values.get(OURS)
        return ours.median / other if ours and other else None


def compare(systems: Sequence[str], measured: Sequence[Measured]) -> list[Comparison]:
    """Every goal that something was measured of."""
    found = []
    for goal in (*GOALS, START):
        values = {}
        for system in systems:
            runs = [run for name in _workloads(goal, measured) for run in whole(measured, system, name)]
            if (each := spread_of(map(goal.of, runs))) is not None:
                values[system] = each
        peers = [system for system in values if system != OURS]
        pick = max if goal.better == "more" else min
        best = pick(peers, key=lambda system: values[system].median) if peers else None
        if values:
            found.append(Comparison(goal, values, best))
    return found


def _workloads(goal: Goal, measured: Sequence[Measured]) -> list[str]:
    if goal.workload is not None:
        return [goal.workload]
    return list(dict.fromkeys(each.run.workload for each in measured))
