"""Counters, gauges and histograms for one thread: a child costs an addition, text is made when asked for."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar

Kind = Literal["counter", "gauge", "histogram"]
Rows = Iterable[tuple[tuple[str, ...], float]]  # values of the labels, and the value


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
    merge: Literal["sum", "max"] = "sum"  # what several processes' values are together
    part: str = ""  # the heading it stands under

    def series(self, name: str = "") -> tuple[str, ...]:
        """What queries can name of it, or of what is called `name` instead."""
        name = name or self.name
        if self.kind == "counter":
            return (f"{name}_total",)
        return (f"{name}_bucket", f"{name}_sum", f"{name}_count") if self.kind == "histogram" else (name,)

    @property
    def unit(self) -> str:
        """As the name says it; empty for what is only counted."""
        return next((unit for unit in _UNITS if self.name.endswith("_" + unit)), "")


_UNITS = ("seconds", "bytes", "dollars", "tokens", "ratio", "celsius", "watts", "joules", "hertz")


class Child(Protocol):
    def samples(self, spec: Spec, name: str, labels: str) -> Iterator[str]:
        """Its lines, under this name; `labels` as they are written, without braces."""


class Counter:
    """Only grows, but for one that copies what somebody else has counted."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def samples(self, spec: Spec, name: str, labels: str) -> Iterator[str]:
        ending = "_total" if spec.kind == "counter" else ""
        yield (
            f"{name}{ending}{{{labels}}} {_shown(self.value)}"
            if labels
            else (f"{name}{ending} {_shown(self.value)}")
        )


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

    def samples(self, spec: Spec, name: str, labels: str) -> Iterator[str]:
        so_far, before = 0, labels + "," if labels else ""
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            so_far += count
            yield f'{name}_bucket{{{before}le="{_shown(bound)}"}} {so_far}.0'
        inside = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{inside} {_shown(self.sum)}"
        yield f"{name}_count{inside} {so_far}.0"


C = TypeVar("C", bound=Child)
V = TypeVar("V", bound=Counter)


class Family(Generic[C]):
    """All children of one metric, by the values of their labels."""

    def __init__(self, spec: Spec, make: Callable[[], C]) -> None:
        self.spec = spec
        self.make = make
        self._children: dict[tuple[str, ...], C] = {}

    def labels(self, *values: str) -> C:
        """The child of these; whoever needs it often keeps it."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.spec.labels):
                raise ValueError(f"{self.spec.name} has the labels {self.spec.labels}, got {values}.")
            child = self._children[values] = self.make()
        return child

    def children(self) -> Iterable[tuple[tuple[str, ...], C]]:
        return self._children.items()

    def clear(self) -> None:
        self._children.clear()

    def lines(self, name: str = "") -> Iterator[str]:
        """In Prometheus's text format; nothing where nothing was measured."""
        spec = self.spec
        if not self._children:
            return
        name = name or spec.name
        ending = "_total" if spec.kind == "counter" else ""
        yield f"# HELP {name}{ending} {_escaped(spec.help)}"
        yield f"# TYPE {name}{ending} {spec.kind}"
        for values, child in self._children.items():
            pairs = zip(spec.labels, values, strict=True)
            yield from child.samples(spec, name, ",".join(f'{key}="{_quoted(text)}"' for key, text in pairs))


def copy(family: Family[V], rows: Rows) -> None:
    """Have these values and no others: those of who is there now, as they say themselves."""
    family.clear()
    for labels, value in rows:
        family.labels(*labels).value = float(value)


def rebound(family: Family[Histogram], bounds: tuple[float, ...]) -> None:
    """Count by these bounds from now on. What was counted by others is given up, as by a restart."""
    family.make = partial(Histogram, bounds)
    for _, child in family.children():
        if child.bounds != bounds:
            child.begin(bounds)


def new_family(spec: Spec) -> Family[Any]:
    if spec.kind == "histogram":
        return Family(spec, partial(Histogram, spec.bounds))
    return Family(spec, Counter if spec.kind == "counter" else Gauge)


def _shown(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
