"""What a server has shown that it can do, and that it cannot: a preset only says what its kind may offer.

Pure. `now` is in monotonic seconds.
"""

from __future__ import annotations

from typing import Final

from penstock.gateway.backends import BackendError, NotOfferedError
from penstock.gateway.backends.relay_errors import misplaced
from penstock.protocol.errors import HTTPError

# What stands between us and a server may say 404 while the server is being exchanged: ask again then.
LACKS_SECONDS: Final = 60.0
# Refusals of an operation as such: by who does not have it, or does not let us use it.
_REFUSALS: Final = (401, 402, 403, 404, 405, 407, 501)


class Abilities:
    def __init__(self, operations: frozenset[str]) -> None:
        self._all = operations
        self._shown: set[str] = set()  # answered before
        self._lacking: dict[str, float] = {}  # until when each is believed to be lacking

    def offered(self, now: float) -> frozenset[str]:
        """What may be asked of it."""
        if not self._lacking:
            return self._all
        self._lacking = {name: until for name, until in self._lacking.items() if now < until}
        return self._all.difference(self._lacking)

    def answered(self, operation: str) -> None:
        self._shown.add(operation)

    def refused(self, operation: str, status: int, error: HTTPError, now: float) -> HTTPError:
        """Learn from a refusal, which was read as `error`; what to raise for it.

        Anybody may ask for anything. Only who refuses what it has answered before, or answers nothing at
        all, can be at fault.
        """
        if isinstance(error, NotOfferedError):
            if operation not in self._shown:
                self._lacking[operation] = now + LACKS_SECONDS
            elif status != 501:  # which is said of something in the request too
                return misplaced(status)
        elif isinstance(error, BackendError) and status in _REFUSALS:
            error.at_fault = operation in self._shown or not self._shown
        return error

    def forget(self) -> None:
        """It was gone: what has come back may be another."""
        self._shown.clear()
        self._lacking.clear()
