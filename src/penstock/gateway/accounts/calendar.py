"""Which day and month it is (UTC), asked thousands of times a second."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import time
from typing import Final

DAY: Final = 86_400  # seconds
LATEST: Final = 253_402_300_799  # the end of year 9999, as far as dates go


class Calendar:
    """`wall` gives Unix seconds. Only days and months come from it: what is timed is monotonic."""

    def __init__(self, wall: Callable[[], float] = time) -> None:
        self.wall = wall
        self._begin = self._end = 0.0
        self._day = ""

    def today(self) -> str:
        """YYYY-MM-DD; its first seven characters are the month."""
        now = self.wall()
        if not self._begin <= now < self._end:
            now = min(max(now, 0.0), LATEST)
            self._begin = now - now % DAY
            self._end = self._begin + DAY
            self._day = datetime.fromtimestamp(self._begin, UTC).strftime("%Y-%m-%d")
        return self._day

    def month_left(self) -> int:
        """Microseconds until the month is over."""
        now = datetime.fromtimestamp(min(max(self.wall(), 0.0), LATEST), UTC)
        first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        if (first.year, first.month) == (9999, 12):
            return 0
        return ((first + timedelta(days=32)).replace(day=1) - now) // timedelta(microseconds=1)
