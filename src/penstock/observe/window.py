"""What finished requests come to, second by second: sums that add up over time, models and processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from penstock.observe.objectives import PATIENT, Promise
from penstock.observe.record import RequestRecord

# Seconds of each window that can be asked for, and the width of the slots it is made of. Longer ones have
# counts alone: distributions of so many slots would take too much memory.
WINDOWS: Final = {60: 1, 300: 10, 900: 10, 1800: 60, 3600: 60, 21_600: 60, 86_400: 600, 259_200: 600}
HISTORY_SECONDS: Final = 120
_KEPT: Final = {1: HISTORY_SECONDS + 10, 10: 910, 60: 21_660, 600: 259_800}  # seconds, by width of slot
_SPREAD: Final = 10  # the widest slots with distributions

_PER_DOUBLING: Final = 8  # buckets: each is 9% wide
_LEAST: Final = 1e-5  # seconds
_MOST: Final = 1e6

Spread = dict[int, int]  # how many there were, by number of bucket


def bucket(seconds: float) -> int:
    return math.floor(math.log2(min(max(seconds, _LEAST), _MOST)) * _PER_DOUBLING)


def quantile(spread: Mapping[int, int], share: float) -> float | None:
    """Seconds that this share took at most, to within a part of a bucket; None of nothing."""
    wanted = share * sum(spread.values())
    passed = 0
    for number, count in sorted(spread.items()):
        if passed + count >= wanted and count:
            return float(2.0 ** ((number + (wanted - passed) / count) / _PER_DOUBLING))
        passed += count
    return None


class Sums(msgspec.Struct):
    """Of some requests of clients; what is bad is so by an objective."""

    requests: int = 0  # however they ended
    failed: int = 0
    shed: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0  # of these
    output_tokens: int = 0
    dollars: float = 0.0
    tpot_seconds: float = 0.0  # sum of the means of requests
    tpot_count: int = 0
    judged: dict[str, int] = msgspec.field(default_factory=dict)  # by objective
    bad: dict[str, int] = msgspec.field(default_factory=dict)  # of these
    ttft: Spread = msgspec.field(default_factory=dict)
    urgent_ttft: Spread = msgspec.field(default_factory=dict)  # without batch work, which waits by design
    tpot: Spread = msgspec.field(default_factory=dict)
    e2e: Spread = msgspec.field(default_factory=dict)
    causes: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, other: Sums, *, spread: bool = True) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in (*_TALLIES, *_SPREADS) if spread else _TALLIES:
            mine = getattr(self, name)
            for key, count in getattr(other, name).items():
                mine[key] = mine.get(key, 0) + count


_TALLIES: Final = ("judged", "bad")
_SPREADS: Final = ("ttft", "urgent_ttft", "tpot", "e2e", "causes")
_COUNTS: Final = tuple(name for name in Sums.__struct_fields__ if name not in (*_TALLIES, *_SPREADS))

ByModel = dict[str, Sums]


def total(sums: Iterable[Sums]) -> Sums:
    found = Sums()
    for each in sums:
        found.add(each)
    return found


class Second(msgspec.Struct):
    """One of the past, of all models together."""

    requests: int = 0
    output_tokens: int = 0
    waiting: int = 0
    ttft: Spread = msgspec.field(default_factory=dict)


class Window:
    """Hears of each request that has ended. Requests of models that are not configured count under no name.

    Slots are numbered by the machine's monotonic clock, which all processes share and nobody can set.
    """

    def __init__(
        self, promised: Callable[[str], Promise], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`promised`: what is, for a model."""
        self._promised = promised
        self._clock = clock
        self._slots: dict[int, dict[int, ByModel]] = {width: {} for width in _KEPT}
        self._waiting: dict[int, int] = {}
        self._rolled = int(clock())  # seconds before this are in the wider slots too
        self._long: dict[int, tuple[int, ByModel]] = {}

    def finished(self, record: RequestRecord) -> None:
        if record.inside:
            return
        models = self._slots[1].setdefault(int(self._clock()), {})
        sums = models.get(record.served_by)
        if sums is None:
            sums = models[record.served_by] = Sums()
        sums.requests += 1
        sums.input_tokens += record.prompt_tokens
        sums.cached_tokens += record.cached_tokens
        sums.output_tokens += record.completion_tokens
        sums.dollars += record.dollars
        for cause in record.causes:
            sums.causes[cause] = sums.causes.get(cause, 0) + 1
        sums.failed += record.outcome == "failed"
        sums.shed += record.outcome == "shed"
        for objective, kept in self._promised(record.served_by).verdicts(record):
            sums.judged[objective] = sums.judged.get(objective, 0) + 1
            if not kept:
                sums.bad[objective] = sums.bad.get(objective, 0) + 1
        ttft, tpot = record.ttft, record.tpot
        if ttft is not None:
            _count(sums.ttft, ttft)
            if record.service_class != PATIENT:
                _count(sums.urgent_ttft, ttft)
        if tpot is not None:
            sums.tpot_seconds += tpot
            sums.tpot_count += 1
            _count(sums.tpot, tpot)
        if record.outcome == "ok":
            _count(sums.e2e, record.seconds)

    def tick(self, waiting: int) -> None:
        """Once a second: roll seconds that are over into wider slots, and forget what is too old."""
        now = int(self._clock())
        self._waiting[now] = waiting
        for second in sorted(key for key in self._slots[1] if self._rolled <= key < now):
            for model, sums in self._slots[1][second].items():
                for width in _KEPT:
                    if width > 1:
                        slot = self._slots[width].setdefault(second // width, {})
                        slot.setdefault(model, Sums()).add(sums, spread=width <= _SPREAD)
        self._rolled = now
        for width, kept in _KEPT.items():
            _forget(self._slots[width], (now - kept) // width)
        _forget(self._waiting, now - HISTORY_SECONDS)

    def sums(self, seconds: int) -> ByModel:
        """Of the last so many seconds (one of `WINDOWS`), by model; the current second is not among them."""
        width, now = WINDOWS[seconds], int(self._clock())
        if width <= _SPREAD:
            return self._summed(seconds, width, now)
        # Many slots, which change little: looked at a few times a minute.
        known = self._long.get(seconds)
        if known is None or known[0] != now // 10:
            known = self._long[seconds] = (now // 10, self._summed(seconds, width, now))
        return known[1]

    def _summed(self, seconds: int, width: int, now: int) -> ByModel:
        found: ByModel = {}
        first, last = (now - seconds) // width, now // width if width > 1 else now - 1
        for number, models in self._slots[width].items():
            if first <= number <= last:
                for model, sums in models.items():
                    found.setdefault(model, Sums()).add(sums)
        return found

    def history(self) -> dict[int, Second]:
        """The last seconds in which something ended or was looked at, by number; the current one excluded."""
        now = int(self._clock())
        found: dict[int, Second] = {}
        for number in range(now - HISTORY_SECONDS, now):
            models, waiting = self._slots[1].get(number), self._waiting.get(number)
            if models is None and waiting is None:
                continue
            sums = total((models or {}).values())
            found[number] = Second(sums.requests, sums.output_tokens, waiting or 0, sums.ttft)
        return found


def _count(spread: Spread, seconds: float) -> None:
    number = bucket(seconds)
    spread[number] = spread.get(number, 0) + 1


def _forget(slots: dict[int, ByModel] | dict[int, int], before: int) -> None:
    for number in [number for number in slots if number < before]:
        del slots[number]
