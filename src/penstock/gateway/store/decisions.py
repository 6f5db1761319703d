"""The log of decisions: one line of JSON for each routed request, for `penstock route replay`.

Several processes append to one file. It is bounded: full, it becomes `FILE.1`, and the one that was there
before is gone.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from penstock.aio.decision import Decision
from penstock.hub.lock import locked

logger = logging.getLogger("penstock.gateway")

MOST_BYTES: Final = 64 << 20  # of one file; with the older one, twice that
MOST_PENDING: Final = 20_000  # decisions; beyond that the oldest are dropped, and counted
ENDING: Final = ".1"


class DecisionLog:
    """`add` is the event loop's and touches no disk; `flush` may run in a thread beside it.

    What cannot be written is kept up to a bound: a log that is behind must not grow the server, and is not
    the ledger. A decision's text is written only if it is there, so whoever makes one asks its tenant first.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._pending: deque[Decision] = deque()
        self._flushing = threading.Lock()
        self._encoder = msgspec.json.Encoder()
        self._failing = False
        self.dropped = 0

    @property
    def pending(self) -> bool:
        return bool(self._pending)

    def add(self, decision: Decision) -> None:
        """Of a finished request: it must not change any more."""
        self._pending.append(decision)
        if len(self._pending) > MOST_PENDING:
            self._pending.popleft()
            self.dropped += 1

    def flush(self) -> bool:
        """Append what has gathered. False: it is kept, to be tried again."""
        with self._flushing:
            batch = [self._pending.popleft() for _ in range(len(self._pending))]
            if not batch:
                return True
            try:
                self._append(b"".join(self._encoder.encode(decision) + b"\n" for decision in batch))
            except OSError as error:
                self._keep(batch)
                if isinstance(error, BlockingIOError):
                    return False
                if not self._failing:
                    logger.error(
                        "Decisions cannot be logged to %s (%s); give it room, or name another file in "
                        "routing.log.",
                        self._path,
                        error.strerror or error,
                    )
                self._failing = True
                return False
            self._failing = False
            return True

    def _keep(self, batch: list[Decision]) -> None:
        self._pending.extendleft(reversed(batch))
        while len(self._pending) > MOST_PENDING:
            self._pending.popleft()
            self.dropped += 1

    def _append(self, lines: bytes) -> None:
        """Whole lines or nothing: what a full disk has cut off is taken back."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._path.with_name(self._path.name + ".lock"), _not_now):
            if self._size() + len(lines) > self._most_bytes and self._size():
                os.replace(self._path, self._path.with_name(self._path.name + ENDING))
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                before = os.fstat(file).st_size
                try:
                    rest = memoryview(lines)
                    while rest:
                        rest = rest[os.write(file, rest) :]
                except OSError:
                    os.ftruncate(file, before)
                    raise
            finally:
                os.close(file)

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0


def _not_now() -> None:
    # The thread that waits here also writes the ledger, and a process that holds the lock may be stopped.
    raise BlockingIOError
