"""When an engine that ended is started again: pauses that double, drawn at random so that nobody is in step.

Pure: the time and the random number are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.process import DeathCause


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """All times in seconds."""

    pause: float = 1.0  # longest before the first restart; doubles with each
    max_pause: float = 60.0
    calm: float = 60.0  # an engine that ran this long has earned short pauses again
    kill_after: float = 60.0  # unhealthy for so long, it is ended by force
    start_within: float = 1800.0  # from the start of the process to its first token


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """An engine ended without being asked to."""

    engine: str
    generation: int
    reason: str
    cause: DeathCause
    requests: tuple[str, ...]  # what it had open: one of them may have caused it
    at: float  # seconds, monotonic


class Restarts:
    """Counts the attempts in a row, and says how long to wait before the next."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self.attempts = 0  # since it last ran for a calm while

    def pause(self, ran: float, draw: float) -> float:
        """Seconds to wait. `ran`: how long it ran before it ended, 0 if it did not start; `draw`: 0 to 1."""
        if ran >= self._policy.calm:
            self.attempts = 0
        longest = min(self._policy.pause * 2.0 ** min(self.attempts, 60), self._policy.max_pause)
        self.attempts += 1
        return longest * draw
