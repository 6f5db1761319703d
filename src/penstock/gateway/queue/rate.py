"""How fast the queue drains, measured where it says something: while requests wait for room."""

from __future__ import annotations

import math

HALF_LIFE = 10.0  # seconds of waiting after which a measurement counts half


class DrainRate:
    """Tokens a second that leave the queue while it is saturated, the recent ones counting most.

    Saturated means that somebody waited and there was no room. What passes straight through, or fills
    room that was free, says nothing about capacity and is left out.
    """

    def __init__(self, half_life: float = HALF_LIFE) -> None:
        self._decay = math.log(2) / half_life
        self._work = 0.0  # tokens
        self._time = 0.0  # seconds
        self._now = -math.inf
        self.saturated = False

    def advance(self, now: float) -> None:
        """The time is now `now`; called before every change, so that the span before it counts as it was."""
        passed = now - self._now
        if passed <= 0:
            return
        self._now = now
        if self.saturated:
            kept = math.exp(-self._decay * passed)
            self._work *= kept
            self._time = self._time * kept + (1 - kept) / self._decay

    def drained(self, tokens: float) -> None:
        if self.saturated:
            self._work += tokens

    def seconds(self, tokens: float) -> float | None:
        """How long so many tokens take; None as long as nothing is known."""
        if not self.saturated:
            return 0.0
        if not self._work or not self._time:
            return None
        return tokens * self._time / self._work
