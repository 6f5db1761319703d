"""Retries in proportion to the load: many failures at once must not multiply it."""

from __future__ import annotations

# Retries that may be spent before any request has earned one, and the most that can be saved up for the
# moment when a replica dies with everything it had.
FIRST = 10.0
MOST = 500.0


class RetryBudget:
    """Every request earns a share of a retry; a retry costs a whole one."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._left = FIRST if share > 0 else 0.0

    def earn(self) -> None:
        """A request came in."""
        self._left = min(self._left + self._share, MOST)

    def spend(self) -> bool:
        """Whether a retry may be made; then it has been paid for."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def pause(attempt: int, first: float, most: float, draw: float) -> float:
    """Seconds before retry number `attempt`, from 1: the part `draw` of a doubling bound (full jitter)."""
    return draw * min(most, first * 2.0 ** (attempt - 1))
