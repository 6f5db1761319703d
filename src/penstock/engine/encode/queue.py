"""Who is encoded in the next step: in order of rank, whole texts, under one token budget. Pure."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field

from penstock.engine.request import Request
from penstock.errors import QueueFullError


@dataclass(frozen=True, slots=True)
class EncodeLimits:
    """Units: requests, tokens, seconds."""

    max_running: int  # texts in one step
    max_waiting: int
    max_step_tokens: int
    arrival_window: float = 0.0
    ageing_seconds: float = 10.0


@dataclass(frozen=True, slots=True, order=True)
class _Waiting:
    rank: float  # arrival, shifted by priority: the same order as the decoder's scheduler
    serial: int
    arrived: float = field(compare=False)
    request: Request = field(compare=False)


class EncodeQueue:
    """A text is computed whole in one step, so nothing is ever half done: there is only waiting."""

    def __init__(self, limits: EncodeLimits) -> None:
        self.limits = limits
        self._waiting: list[_Waiting] = []
        self._ids: set[str] = set()
        self._serial = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._ids

    def submit(self, request: Request, now: float) -> None:
        limits = self.limits
        if len(self._waiting) >= limits.max_waiting + limits.max_running:
            raise QueueFullError(
                f"The engine's queue is full: {len(self._waiting)} texts are waiting, and max_running "
                f"({limits.max_running}) and max_waiting ({limits.max_waiting}) allow no more."
            )
        self._serial += 1
        rank = now + request.priority * limits.ageing_seconds
        insort(self._waiting, _Waiting(rank, self._serial, now, request))
        self._ids.add(request.id)

    def cancel(self, request_id: str) -> bool:
        """Whether it was waiting."""
        if request_id not in self._ids:
            return False
        self._ids.remove(request_id)
        self._waiting = [each for each in self._waiting if each.request.id != request_id]
        return True

    def wake_at(self, now: float) -> float | None:
        """When to look again, while a step's room is not full and the first arrival's window is open."""
        limits = self.limits
        if not self._waiting or limits.arrival_window <= 0 or len(self._waiting) >= limits.max_running:
            return None
        if sum(len(each.request.prompt) for each in self._waiting) >= limits.max_step_tokens:
            return None
        until = min(each.arrived for each in self._waiting) + limits.arrival_window
        return until if until > now else None

    def take(self) -> list[Request]:
        """The next step's texts, out of the queue; the first in order always, others while they fit."""
        limits, tokens, count = self.limits, 0, 0
        for each in self._waiting[: limits.max_running]:
            tokens += len(each.request.prompt)
            if count and tokens > limits.max_step_tokens:
                break
            count += 1
        taken = [each.request for each in self._waiting[:count]]
        del self._waiting[:count]
        self._ids.difference_update(request.id for request in taken)
        return taken

    def check(self) -> None:
        """Assert that the order and the ids agree."""
        assert self._waiting == sorted(self._waiting)
        assert sorted(self._ids) == sorted(each.request.id for each in self._waiting)
