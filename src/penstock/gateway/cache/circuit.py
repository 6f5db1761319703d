"""When to leave a store alone that does not answer, and when to try it again. Pure."""

from __future__ import annotations

from typing import Final

FAILURES: Final = 3  # in a row, after which it is left alone
FIRST_PAUSE: Final = 1.0  # seconds
LONGEST_PAUSE: Final = 8.0  # seconds: it is back in use within ten


class Circuit:
    """`now` is monotonic seconds."""

    def __init__(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until = 0.0
        self._probing = False

    def closed(self, now: float) -> bool:
        """Whether it may be asked. While it is being left alone, one request in each pause may: the probe."""
        if self._failures < FAILURES:
            return True
        if now < self._until:
            return False
        self._until = now + self._pause
        self._probing = True
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._probing = False

    def failed(self, now: float) -> bool:
        """Whether it is left alone from here on, and was not before."""
        self._failures += 1
        if self._failures > FAILURES:
            # Only a probe tells anything new; others were on their way when it opened.
            if self._probing:
                self._probing = False
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
                self._until = now + self._pause
            return False
        self._until = now + self._pause
        return self._failures == FAILURES
