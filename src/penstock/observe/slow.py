"""Why a request took its time: every second is put down to one cause, and the longest are named. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from penstock.observe.record import Phase, RequestRecord

Cause = Literal[
    "slow admission",
    "slow cache",
    "slow route",
    "queued",
    "retried",
    "second look",
    "long prefill",
    "cold cache",
    "preempted",
    "slow replica",
    "slow decode",
    "long answer",
    "slow client",
    "busy gateway",
]
# A cause that made out less than this share of the time is not worth a name, unless it is the longest.
WORTH_NAMING: Final = 0.15
# Of prompt tokens: where less is usually found in the prefix cache, finding nothing is no surprise.
USUALLY_CACHED: Final = 0.2
_MEDIAN_STEP: Final = 0.02
_CACHED_STEP: Final = 0.02

_Add = Callable[[Cause, float], None]
_BEFORE: Final[dict[str, Cause]] = {
    "admission": "slow admission",
    "cache": "slow cache",
    "route": "slow route",
    "queue": "queued",
}


class Median:
    """Of a stream of positive numbers, the latest counting most: a step towards each that comes."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count = 0
        self.value = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        if self.count == 1 or self.value <= 0.0:
            self.value = value
        elif value != self.value:
            step = 1.0 + max(_MEDIAN_STEP, 1.0 / self.count)
            self.value = self.value * step if value > self.value else self.value / step


@dataclass(slots=True)
class Usual:
    """What requests of one model are like: those that were answered, and not from the response cache."""

    seconds: Median = field(default_factory=Median)
    tpot: Median = field(default_factory=Median)
    cached: float = 0.0  # share of a prompt's tokens that the prefix cache had

    def add(self, record: RequestRecord) -> None:
        self.seconds.add(record.seconds)
        tpot = record.tpot
        if tpot is not None:
            self.tpot.add(tpot)
        if record.prompt_tokens:
            share = record.cached_tokens / record.prompt_tokens
            self.cached += (share - self.cached) * max(_CACHED_STEP, 1.0 / self.seconds.count)


def causes(record: RequestRecord, usual: Usual, until: float) -> dict[Cause, float]:
    """Seconds of each cause worth naming, the longest first, of the time from arrival `until` then. Tokens
    that came as quickly as they do were asked for: whatever else is worth naming goes before them."""
    spent = parts(record, usual, until)
    least = min(WORTH_NAMING * (until - record.arrived), max(spent.values(), default=0.0))
    found = [(cause, seconds) for cause, seconds in spent.items() if seconds >= least and seconds > 0]
    return dict(sorted(found, key=lambda part: (part[0] == "long answer", -part[1])))


def parts(record: RequestRecord, usual: Usual, until: float) -> dict[Cause, float]:
    """Where the time from arrival `until` then went; the parts add up to it."""
    spent: dict[Cause, float] = {}

    def add(cause: Cause, seconds: float) -> None:
        spent[cause] = spent.get(cause, 0.0) + seconds

    def within(phase: Phase) -> float:
        return max(0.0, min(phase.end, until) - max(phase.start, record.arrived))

    phases = record.phases
    # What happens within an attempt comes behind it.
    attempts = [number for number, phase in enumerate(phases) if phase.name == "attempt"]
    last = attempts[-1] if attempts else len(phases)
    for number, phase in enumerate(phases[: last + 1]):
        if phase.name in _BEFORE and phase.detail != "engine":
            add(_BEFORE[phase.name], within(phase))
        elif phase.name == "attempt" and number < last:
            add("retried" if phase.failed else "second look", within(phase))
    if attempts:
        attempt, inside = phases[last], phases[last + 1 :]
        _attempt(record, usual, within(attempt), [(phase, within(phase)) for phase in inside], add)
    rest = until - record.arrived - sum(spent.values())
    if rest > 0:
        add("retried" if record.retries else "second look" if record.escalations else "busy gateway", rest)
    return spent


def _attempt(
    record: RequestRecord, usual: Usual, total: float, inside: Iterable[tuple[Phase, float]], add: _Add
) -> None:
    """The attempt that counted, which took `total` seconds."""
    decode = 0.0
    rest = total
    for phase, seconds in inside:
        if phase.name not in ("queue", "prefill", "decode"):
            continue  # what came after the attempt
        rest -= seconds
        if phase.name == "queue":
            add("queued", seconds)
        elif phase.name == "prefill":
            add(_prefill(record, usual, phase), seconds)
        else:
            decode = seconds
    blocked = min(record.blocked, decode + rest)
    add("slow client", blocked)
    # While nothing is taken, nothing is written: that time is a part of what the tokens seem to have taken.
    late = max(0.0, blocked - decode)
    decode, rest = max(0.0, decode - blocked), rest - late
    further = record.further_tokens
    expected = decode if further is None or not usual.tpot.count else usual.tpot.value * max(0.0, further)
    if record.preemptions > record.preempted_early:
        expected = min(expected, decode) if usual.tpot.count else 0.0
        add("preempted", decode - expected)
    else:
        expected = min(expected, decode)
        add("slow decode", decode - expected)
    add("long answer", expected)
    add("slow replica", max(0.0, rest))


def _prefill(record: RequestRecord, usual: Usual, phase: Phase) -> Cause:
    if record.preempted_early:
        return "preempted"
    if phase.detail == "upstream":
        return "slow replica"
    share = record.cached_tokens / record.prompt_tokens if record.prompt_tokens else 0.0
    return "cold cache" if usual.cached >= USUALLY_CACHED and share < usual.cached / 2 else "long prefill"
