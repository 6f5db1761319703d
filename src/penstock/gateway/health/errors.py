"""The share of a replica's answers that failed lately."""

from __future__ import annotations

from collections import deque

BUCKETS = 10  # the window is this many parts long; memory does not grow with the load


class ErrorRate:
    """Counts answers over a sliding window, in parts of a tenth of it."""

    def __init__(self, window: float) -> None:
        self._part = window / BUCKETS  # seconds
        self._counts: deque[list[int]] = deque()  # [number of the part, answers, failures], oldest first

    def add(self, ok: bool, now: float) -> None:
        at = int(now // self._part)
        if not self._counts or self._counts[-1][0] < at:
            self._counts.append([at, 0, 0])
            self._forget(at)
        last = self._counts[-1]
        last[1] += 1
        last[2] += not ok

    def failed(self, now: float) -> tuple[int, int]:
        """Failures and answers of the window that ends now."""
        self._forget(int(now // self._part))
        return sum(count[2] for count in self._counts), sum(count[1] for count in self._counts)

    def clear(self) -> None:
        self._counts.clear()

    def _forget(self, at: int) -> None:
        while self._counts and self._counts[0][0] <= at - BUCKETS:
            self._counts.popleft()
