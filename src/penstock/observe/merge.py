"""What several processes have measured, as one: numbers are added up, never read back from text."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.observe.catalogue import Families
from penstock.observe.instruments import Family, Gauge, Histogram, Spec, rebound


class FamilyPart(msgspec.Struct, array_like=True, frozen=True):
    name: str
    bounds: tuple[float, ...]  # of a histogram
    rows: list[tuple[tuple[str, ...], tuple[float, ...]]]  # values of the labels, and the child's state


class Part(msgspec.Struct, array_like=True, frozen=True):
    """All that one process has measured since it was started; `run` is another after each start."""

    run: str
    families: list[FamilyPart]


# What every process says of the same thing would mean nothing if it was added up.
_TOGETHER: Final[dict[str, Callable[[float, float], float]]] = {
    "sum": operator.add,
    "max": max,
    "min": min,
}
# What grows is added up in whole numbers of a tiny fraction: sums of floats depend on their order, which
# changes when a process is gone, and the least fall is a restart for Prometheus.
_FRACTION: Final = 2**80


async def part(run: str, families: Families) -> Part:
    """A process's own, taken while everybody else goes on."""
    parts = []
    for family in families.all:
        if family.children():
            parts.append(_part(family))
            await asyncio.sleep(0)
    return Part(run, parts)


def grows(spec: Spec) -> bool:
    """Counters and histograms: what a process that is gone has measured stays true."""
    return spec.kind != "gauge"


def retires(spec: Spec) -> bool:
    """Those that begin at nothing with the process. The rest is the account of somebody who goes on, and is
    told anew by the process's successor."""
    return grows(spec) and spec.merge == "sum"


def add(families: Families, part: Part, wanted: Callable[[Spec], bool] = lambda spec: True) -> None:
    """Have what these families have become, and what `part` says of those that are wanted. A histogram with
    other bounds is left out. To be read after `settle`."""
    told = {each.name: each for each in part.families}
    for family in families.all:
        found = told.get(family.spec.name)
        if found is None or not wanted(family.spec):
            continue
        if family.spec.kind == "histogram":
            _add_histograms(family, found)
        else:
            _add_values(family, found)


def settle(families: Families) -> None:
    """Everything was added."""
    for family in families.all:
        if retires(family.spec):
            for _, child in family.children():
                if isinstance(child, Histogram):
                    child.sum /= _FRACTION
                else:
                    child.value /= _FRACTION


class Retired:
    """What processes that are gone had counted, added up. Together with those that are there, nothing falls:
    Prometheus would take that for a restart, and the rest for new requests."""

    def __init__(self) -> None:
        self._families = Families()

    def take(self, part: Part) -> None:
        told = {each.name: each for each in part.families}
        for family in self._families.all:
            each, children = told.get(family.spec.name), family.children()
            if each is None or not children or not isinstance(children[0][1], Histogram):
                continue
            if children[0][1].bounds != each.bounds:  # a new beginning for everybody
                family.clear()
        add(self._families, part, retires)

    def part(self) -> Part:
        return Part("", [_part(family) for family in self._families.all if family.children()])


def _part(family: Family[Any]) -> FamilyPart:
    children = family.children()
    bounds = children[0][1].bounds if family.spec.kind == "histogram" else ()
    return FamilyPart(family.spec.name, bounds, [(values, child.state()) for values, child in children])


def _add_histograms(family: Family[Histogram], part: FamilyPart) -> None:
    children = family.children()
    if not children:
        rebound(family, part.bounds)
    elif children[0][1].bounds != part.bounds:
        return
    for values, (*counts, total) in part.rows:
        child = family.labels(*values)
        child.sum = int(child.sum)
        child.add((*counts, _exact(total)))


def _add_values(family: Family[Gauge], part: FamilyPart) -> None:
    together, exact = _TOGETHER[family.spec.merge], retires(family.spec)
    for values, (value,) in part.rows:
        if exact:
            value = _exact(value)
        known = family.child(values)
        family.labels(*values).value = value if known is None else together(known.value, value)


def _exact(value: float) -> int:
    """In fractions; what was added up before is in them already."""
    return value if type(value) is int else int(value * _FRACTION)
