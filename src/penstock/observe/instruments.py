"""Counters, gauges and histograms for one thread: a child costs an addition, text is made when asked for."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Generic, Literal, Protocol, TypeVar

Kind = Literal["counter", "gauge", "histogram"]
Rows = Iterable[tuple[tuple[str, ...], float]]  # values of the labels, and the value
AT_ONCE = 200  # children whose lines are written without a pause


@dataclass(frozen=True, slots=True)
class Spec:
    """A metric as the catalogue declares it. `name` is without the ending that a counter is exported with."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()
    objective: str = ""  # the promises that become bounds: ttft, tpot, e2e
    also: str = ""  # vLLM's name for the same, exported where that is wanted
    merge: Literal["sum", "max", "min"] = "sum"  # what several processes' values are together


class Child(Protocol):
    def heads(self, name: str, labels: str) -> tuple[str, ...]:
        """Its lines under this name, up to their values; `labels` as they are written, without braces."""

    def lines(self, heads: tuple[str, ...]) -> list[str]: ...

    def state(self) -> tuple[float, ...]:
        """All that it has measured, for who adds it up."""


class Counter:
    """Only grows, but for one that copies what somebody else has counted."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def heads(self, name: str, labels: str) -> tuple[str, ...]:
        return (f"{name}{{{labels}}} " if labels else f"{name} ",)

    def lines(self, heads: tuple[str, ...]) -> list[str]:
        return [heads[0] + _shown(self.value)]

    def state(self) -> tuple[float, ...]:
        return (self.value,)


class Gauge(Counter):
    __slots__ = ()

    def set(self, value: float) -> None:
        self.value = value


class Histogram:
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.begin(bounds)

    def begin(self, bounds: tuple[float, ...]) -> None:
        """Start at nothing, as after a restart, with these bounds: upper ones, each in its own bucket."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def heads(self, name: str, labels: str) -> tuple[str, ...]:
        before, inside = (labels + ",", f"{{{labels}}}") if labels else ("", "")
        buckets = (f'{name}_bucket{{{before}le="{_shown(bound)}"}} ' for bound in (*self.bounds, math.inf))
        return (*buckets, f"{name}_sum{inside} ", f"{name}_count{inside} ")

    def lines(self, heads: tuple[str, ...]) -> list[str]:
        values = [f"{so_far}.0" for so_far in accumulate(self.counts)]
        values += _shown(self.sum), values[-1]
        return list(map(operator.add, heads, values))

    def state(self) -> tuple[float, ...]:
        return (*self.counts, self.sum)

    def add(self, state: Sequence[float]) -> None:
        """What another one with the same bounds has measured."""
        *counts, total = state
        self.counts = [mine + int(other) for mine, other in zip(self.counts, counts, strict=True)]
        self.sum += total


C = TypeVar("C", bound=Child)
V = TypeVar("V", bound=Counter)


class Family(Generic[C]):
    """All children of one metric, by the values of their labels."""

    def __init__(self, spec: Spec, make: Callable[[], C]) -> None:
        self.spec = spec
        self.make = make
        self._children: dict[tuple[str, ...], C] = {}
        # By name and labels: to write these anew for each page would take most of its time.
        self._heads: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {}

    def labels(self, *values: str) -> C:
        """The child of these; whoever needs it often keeps it."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.spec.labels):
                raise ValueError(f"{self.spec.name} has the labels {self.spec.labels}, got {values}.")
            child = self._children[values] = self.make()
        return child

    def child(self, values: tuple[str, ...]) -> C | None:
        """The child of these, if there is one."""
        return self._children.get(values)

    def children(self) -> list[tuple[tuple[str, ...], C]]:
        return list(self._children.items())

    def clear(self) -> None:
        self._children.clear()
        self._heads.clear()

    def forget_heads(self) -> None:
        """Children have other lines from now on, also for who is writing them."""
        for heads in self._heads.values():
            heads.clear()

    def lines(self, name: str = "") -> Iterator[list[str]]:
        """In Prometheus's text format, a few hundred at a time; nothing where nothing was measured."""
        spec = self.spec
        name = name or spec.name
        if spec.kind == "counter":
            name += "_total"
        children = self.children()
        if children:
            yield [f"# HELP {name} {_escaped(spec.help)}", f"# TYPE {name} {spec.kind}"]
        known = self._heads.setdefault(name, {})
        for start in range(0, len(children), AT_ONCE):
            lines: list[str] = []
            for values, child in children[start : start + AT_ONCE]:
                heads = known.get(values)
                if heads is None:
                    pairs = zip(spec.labels, values, strict=True)
                    written = ",".join(f'{key}="{_quoted(text)}"' for key, text in pairs)
                    heads = known[values] = child.heads(name, written)
                lines += child.lines(heads)
            yield lines


def copy(family: Family[V], rows: Rows) -> None:
    """Have these values and no others: those of who is there now, as they say themselves."""
    family.clear()
    for labels, value in rows:
        family.labels(*labels).value = float(value)


def rebound(family: Family[Histogram], bounds: tuple[float, ...]) -> None:
    """Count by these bounds from now on. What was counted by others is given up, as by a restart."""
    family.make = partial(Histogram, bounds)
    family.forget_heads()
    for _, child in family.children():
        if child.bounds != bounds:
            child.begin(bounds)


def new_family(spec: Spec) -> Family[Any]:
    if spec.kind == "histogram":
        return Family(spec, partial(Histogram, spec.bounds))
    return Family(spec, Counter if spec.kind == "counter" else Gauge)


def _shown(value: float) -> str:
    text = repr(float(value))
    return _ODD.get(text, text)


_ODD = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
