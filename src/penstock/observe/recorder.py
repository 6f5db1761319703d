"""Hands the record of every request that has ended to whoever counts, shows, traces or explains it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final, Protocol

from penstock import logs
from penstock.observe.record import RequestRecord

logger = logging.getLogger("penstock.observe")

MOST_UNTOLD: Final = 256  # requests


class Listener(Protocol):
    """Called in the event loop: quick, and without waiting for anything."""

    def finished(self, record: RequestRecord) -> None: ...


class Recorder:
    """Tells its listeners in order: whoever adds to a record comes before who reads it.

    They are told of several requests at once, a few times a second: one after the other each of them takes a
    third of the time that it takes between two requests, when the processor has forgotten all about it.
    Whoever shows what was recorded has it told first.
    """

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners = list(listeners)
        self._failed: set[Listener] = set()
        self._ended: list[RequestRecord] = []  # of which nobody has been told
        self.enabled = True  # otherwise nobody ever is

    def add(self, listener: Listener) -> None:
        """Tell it of those that end from now on."""
        self.tell()
        self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        self.tell()
        self._listeners.remove(listener)
        self._failed.discard(listener)

    def finish(self, record: RequestRecord) -> None:
        """It has ended now."""
        record.ended = time.monotonic()
        if self.enabled:
            self._ended.append(record)
            if len(self._ended) >= MOST_UNTOLD:
                self.tell()

    def tell(self) -> None:
        """Tell of all that have ended."""
        if not self._ended:
            return
        ended, self._ended = self._ended, []
        for listener in self._listeners:
            hear = listener.finished
            for record in ended:
                try:
                    hear(record)
                except Exception:  # what is observed must not suffer from who observes
                    self._complain(listener, record)

    def _complain(self, listener: Listener, record: RequestRecord) -> None:
        """Once of each."""
        if listener not in self._failed:
            self._failed.add(listener)
            name = type(listener).__name__
            with logs.about(record.id):
                logger.exception(
                    "%s failed on request %s; further failures of it are not logged.", name, record.id
                )
