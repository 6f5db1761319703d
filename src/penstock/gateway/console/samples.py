"""What engines have counted, looked at each second: what it was a while ago tells what it came to since."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.gateway.deployment import Deployment
from penstock.gateway.dispatch import Member
from penstock.gateway.local.backend import EngineBackend

WINDOW_SECONDS: Final = 60
FAULT_SECONDS: Final = 300
QUEUE_SECONDS: Final = 300


class _Counts(NamedTuple):
    queries: int  # prompt tokens looked up in the prefix cache
    hits: int
    oom: int  # steps
    starved: int  # engines that died for want of memory


class Samples:
    """Kept by the event loop, one look for each call of `look`."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], deque[_Counts]] = {}
        self._waiting: dict[str, deque[int]] = {}  # requests, by model, the newest last

    def look(self, deployments: Iterable[Deployment]) -> int:
        """Once a second; returns how many requests wait."""
        counts, waiting = {}, {}
        for deployment in deployments:
            lengths = waiting[deployment.name] = self._waiting.get(
                deployment.name, deque(maxlen=QUEUE_SECONDS)
            )
            lengths.append(sum(deployment.dispatcher.queue.counts.values()))
            for name, member in deployment.dispatcher.members.items():
                if isinstance(member.backend, EngineBackend):
                    stats, key = member.backend.stats, (deployment.name, name)
                    looks = counts[key] = self._counts.get(key, deque(maxlen=FAULT_SECONDS + 1))
                    starved = member.backend.deaths.get("out_of_memory", 0)
                    looks.append(_Counts(stats.prefix_queries, stats.prefix_hits, stats.oom_steps, starved))
        self._counts, self._waiting = counts, waiting
        return sum(lengths[-1] for lengths in waiting.values())

    def growth(self, model: str) -> float:
        """Requests a second by which its queue has grown: the slope of a line through the last minutes."""
        lengths = self._waiting.get(model, ())
        middle = (len(lengths) - 1) / 2
        spread = sum((at - middle) ** 2 for at in range(len(lengths)))
        return sum((at - middle) * length for at, length in enumerate(lengths)) / spread if spread else 0.0

    def prefix_hits(self, model: str, member: Member) -> float | None:
        """Share of the prompt tokens of the last minute that were found; None: none was looked up."""
        looks = self._counts.get((model, member.backend.name))
        if looks is None:
            return None
        queries, hits, *_ = _since(looks, WINDOW_SECONDS)
        return hits / queries if queries else None

    def oom(self, model: str, member: Member) -> int:
        """Steps of the last minutes that the device had no memory for, and engines that died of it."""
        looks = self._counts.get((model, member.backend.name))
        if looks is None:
            return 0
        grown = _since(looks, FAULT_SECONDS)
        return grown.oom + grown.starved


def _since(looks: deque[_Counts], seconds: int) -> _Counts:
    then, now = looks[max(0, len(looks) - 1 - seconds)], looks[-1]
    # An engine that was started again counts from nothing.
    grown = (after - before if after >= before else after for before, after in zip(then, now, strict=True))
    return _Counts(*grown)
