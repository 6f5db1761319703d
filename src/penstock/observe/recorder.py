"""Hands the record of every request that has ended to whoever counts, shows, traces or explains it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Protocol

from penstock.observe.record import RequestRecord

logger = logging.getLogger("penstock.observe")


class Listener(Protocol):
    """Called in the event loop, between two requests: quick, and without waiting for anything."""

    def finished(self, record: RequestRecord) -> None: ...


class Recorder:
    """Tells its listeners in order: whoever adds to a record comes before who reads it."""

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners = list(listeners)
        self._failed: set[Listener] = set()
        self.enabled = True  # otherwise nobody is told of anything

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        self._listeners.remove(listener)
        self._failed.discard(listener)

    def finish(self, record: RequestRecord) -> None:
        """It has ended now."""
        record.ended = time.monotonic()
        for listener in self._listeners if self.enabled else ():
            try:
                listener.finished(record)
            except Exception:  # what is observed must not suffer from who observes
                if listener not in self._failed:
                    self._failed.add(listener)
                    name = type(listener).__name__
                    logger.exception(
                        "%s failed on request %s; further failures of it are not logged.", name, record.id
                    )
