"""What finished requests come to, second by second: sums that add up over time, models and processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from penstock.observe.objectives import PATIENT
from penstock.observe.record import RequestRecord

# Seconds of each window that can be asked for, and the width of the slots it is made of. Longer ones have
# counts alone: distributions of so many slots would take too much memory.
WINDOWS: Final = {60: 1, 300: 10, 900: 10, 1800: 60, 3600: 60, 21_600: 60, 86_400: 600, 259_200: 600}
HISTORY_SECONDS: Final = 120
_KEPT: Final = {1: HISTORY_SECONDS + 10, 10: 910, 60: 21_660, 600: 259_800}  # seconds, by width of slot
_SPREAD: Final = 10  # the widest slots with distributions

_PER_DOUBLING: Final = 8  # buckets: each is 9% wide
_LEAST: Final = 1e-5  # seconds
_LOWEST: Final = math.floor(_PER_DOUBLING * math.log2(_LEAST))

Spread = dict[int, int]  # how many there were, by number of bucket


def bucket(seconds: float) -> int:
    return math.floor(_PER_DOUBLING * math.log2(seconds)) if seconds > _LEAST else _LOWEST


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
    causes: dict[str, int] = msgspec.field(default_factory=dict)  # of slow ones
    ttft: Spread = msgspec.field(default_factory=dict)
    batch_ttft: Spread = msgspec.field(default_factory=dict)  # of these; such work waits by design
    tpot: Spread = msgspec.field(default_factory=dict)
    e2e: Spread = msgspec.field(default_factory=dict)

    def add(self, other: Sums, sign: int = 1, *, spread: bool = True) -> None:
        """Add it, or with a `sign` of -1 take it out again; without `spread`, its counts alone."""
        self.requests += sign * other.requests
        self.failed += sign * other.failed
        self.shed += sign * other.shed
        self.input_tokens += sign * other.input_tokens
        self.cached_tokens += sign * other.cached_tokens
        self.output_tokens += sign * other.output_tokens
        self.dollars += sign * other.dollars
        self.tpot_seconds += sign * other.tpot_seconds
        self.tpot_count += sign * other.tpot_count
        _add(self.judged, other.judged, sign)
        _add(self.bad, other.bad, sign)
        _add(self.causes, other.causes, sign)
        if spread:
            _add(self.ttft, other.ttft, sign)
            _add(self.batch_ttft, other.batch_ttft, sign)
            _add(self.tpot, other.tpot, sign)
            _add(self.e2e, other.e2e, sign)

    @property
    def urgent_ttft(self) -> Spread:
        left = dict(self.ttft)
        _add(left, self.batch_ttft, -1)
        return left

    def __bool__(self) -> bool:
        return bool(self.requests or self.judged)


Key = TypeVar("Key")


def _add(mine: dict[Key, int], others: Mapping[Key, int], sign: int) -> None:
    for key, count in others.items():
        left = mine.get(key, 0) + sign * count
        if left:
            mine[key] = left
        else:
            mine.pop(key, None)


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

    def add(self, other: Second) -> None:
        self.requests += other.requests
        self.output_tokens += other.output_tokens
        self.waiting += other.waiting
        _add(self.ttft, other.ttft, 1)


Judged = Iterable[tuple[tuple[str, ...], float]]  # model, objective, verdict; how many so far


class Window:
    """Hears of each request that has ended: a few additions. The rest is done once a second.

    Slots are numbered by the machine's monotonic clock, which all processes share and nobody can set.
    """

    def __init__(
        self,
        models: Callable[[], Container[str]],
        judged: Callable[[], Judged],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`models`: those that are served; what was asked of others counts under no name. `judged`: the
        counters of what was."""
        self._models = models
        self._judged = judged
        self._clock = clock
        self._seen = dict(judged())
        self._slots: dict[int, dict[int, ByModel]] = {width: {} for width in _KEPT}
        self._sums: dict[int, ByModel] = {seconds: {} for seconds in WINDOWS}
        self._rolled = int(clock())  # seconds before this are in all sums
        self._first = dict.fromkeys(WINDOWS, 0)  # the oldest slot that is
        self._history: dict[int, Second] = {}
        self._now: tuple[int, ByModel] = (-1, {})  # the current second

    def finished(self, record: RequestRecord) -> None:
        if record.inside:
            return
        number, models = self._now
        if number != int(record.ended):
            number = max(int(record.ended), self._rolled)  # whoever is told late has not ended earlier
            models = self._slots[1].setdefault(number, {})
            self._now = number, models
        name = record.served_by or (record.model if record.model in self._models() else "")
        sums = models.get(name)
        if sums is None:
            sums = models[name] = Sums()
        sums.requests += 1
        sums.input_tokens += record.prompt_tokens
        sums.output_tokens += record.completion_tokens
        if record.cached_tokens:
            sums.cached_tokens += record.cached_tokens
        if record.dollars:
            sums.dollars += record.dollars
        arrived, first = record.arrived, record.first_token
        if first:
            at = bucket(first - arrived)
            spread = sums.ttft
            spread[at] = spread.get(at, 0) + 1
            if record.service_class == PATIENT:
                sums.batch_ttft[at] = sums.batch_ttft.get(at, 0) + 1
            tpot = record.tpot
            if tpot is not None:
                sums.tpot_seconds += tpot
                sums.tpot_count += 1
                at = bucket(tpot)
                spread = sums.tpot
                spread[at] = spread.get(at, 0) + 1
        if record.outcome == "ok":
            at = bucket(record.ended - arrived)
            spread = sums.e2e
            spread[at] = spread.get(at, 0) + 1
        elif record.outcome == "failed":
            sums.failed += 1
        elif record.outcome == "shed":
            sums.shed += 1
        for cause in record.causes:
            sums.causes[cause] = sums.causes.get(cause, 0) + 1

    def tick(self, waiting: int) -> None:
        """About once a second: what is over goes into all sums, what is too old leaves them."""
        now = int(self._clock())
        if now <= self._rolled:
            return
        self._note_judged(now - 1)
        for number in range(max(self._rolled, now - HISTORY_SECONDS), now):
            second = self._history[number] = Second(waiting=waiting)
            for sums in self._slots[1].get(number, {}).values():
                second.add(Second(sums.requests, sums.output_tokens, 0, sums.ttft))
        for number in sorted(key for key in self._slots[1] if self._rolled <= key < now):
            self._roll(number)
        self._rolled = now
        for seconds, width in WINDOWS.items():
            self._leave(seconds, width, (now - seconds) // width)
        for width, kept in _KEPT.items():
            _forget(self._slots[width], (now - kept) // width)
        _forget(self._history, now - HISTORY_SECONDS)

    def _note_judged(self, number: int) -> None:
        for labels, count in self._judged():
            more = round(count - self._seen.get(labels, 0.0))
            self._seen[labels] = count
            if more > 0:
                model, objective, verdict = labels
                sums = self._slots[1].setdefault(number, {}).setdefault(model, Sums())
                sums.judged[objective] = sums.judged.get(objective, 0) + more
                if verdict == "bad":
                    sums.bad[objective] = sums.bad.get(objective, 0) + more

    def _roll(self, number: int) -> None:
        for model, sums in self._slots[1][number].items():
            for width, slots in self._slots.items():
                if width > 1:
                    slot = slots.setdefault(number // width, {})
                    slot.setdefault(model, Sums()).add(sums, spread=width <= _SPREAD)
            for seconds, width in WINDOWS.items():
                self._sums[seconds].setdefault(model, Sums()).add(sums, spread=width <= _SPREAD)

    def _leave(self, seconds: int, width: int, first: int) -> None:
        """From now on the window begins with the slot `first`."""
        slots, models = self._slots[width], self._sums[seconds]
        before, self._first[seconds] = self._first[seconds], first
        # Slots are fewer than the numbers between two looks that are far apart.
        gone = range(before, first) if first - before < len(slots) else slots
        for number in gone:
            if before <= number < first:
                for model, sums in slots.get(number, {}).items():
                    left = models.get(model)
                    if left is not None:
                        left.add(sums, -1)
                        if not left:
                            del models[model]  # and with it what the sums of floats are beside nothing

    def sums(self, seconds: int) -> ByModel:
        """Of the last so many seconds (one of `WINDOWS`), by model; the current second is not among them.
        To be read at once, and not to be changed."""
        return self._sums[seconds]

    def history(self) -> dict[int, Second]:
        """The last seconds, by number; the current one excluded."""
        return self._history


def _forget(slots: dict[int, ByModel] | dict[int, Second], before: int) -> None:
    for number in [number for number in slots if number < before]:
        del slots[number]
