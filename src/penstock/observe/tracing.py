"""Traces of requests: sampled where they come in, sent to a collector by a thread when they have ended.

A collector that cannot be reached slows nobody down: so many requests are kept for it, and no more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from penstock.observe.collector import Collector, UndeliveredError
from penstock.observe.otlp import Batch
from penstock.observe.record import RequestRecord
from penstock.observe.spans import Value, spans_of
from penstock.observe.trace import Sampler, Tally, Trace

logger = logging.getLogger("penstock.observe")

KEPT: Final = 4096  # requests that wait to be sent; further ones are lost
BATCH: Final = 256  # requests sent at once
POLITE: Final = 8  # requests whose spans are made in one go, while the process answers nobody
SEND_SECONDS: Final = 1.0  # that a request waits at most, if all is well
MAX_PAUSE: Final = 30.0  # seconds between tries at a collector that is not there
CLOSE_SECONDS: Final = 3.0  # for what is left at the end


class Tracing:
    """A listener. What it costs a request is a place in a queue; spans are made by the thread."""

    def __init__(
        self,
        collector: Collector,
        sampler: Sampler,
        resource: Mapping[str, Value],
        version: str,
        tally: Tally | None = None,
    ) -> None:
        self._sampler = sampler
        self._collector = collector
        self._resource = resource
        self._version = version
        self._waiting: deque[RequestRecord] = deque()
        self._wake = threading.Event()
        self._closing = False
        self.tally = tally or Tally()
        self._told = self.tally.lost  # of those lost, how many have been spoken of
        self._failing = False
        self._behind = False  # it takes less than there is, which was said
        self._odd = False  # a record could not be written, which was said
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin(self, caller: Trace | None) -> Trace:
        """The trace of a request that has come in."""
        return self._sampler.begin(caller)

    def finished(self, record: RequestRecord) -> None:
        # Those of clients that are known: who has no key must not fill the queue, nor the collector.
        if record.trace is None or not record.trace.sampled or not record.tenant:
            return
        waiting = self._waiting
        if len(waiting) >= KEPT:
            self.tally.add(lost=1)
            if not self._failing and not self._behind:
                self._behind = True
                logger.warning(
                    "%s takes fewer traces than there are; some are lost. Trace fewer with tracing.sample.",
                    self._collector.url,
                )
            return
        waiting.append(record)
        if len(waiting) == BATCH:
            self._wake.set()

    def close(self) -> None:
        """Send what is left, if that can be done soon. Waits."""
        self._closing = True
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        self._send_all()
        self.tally.add(lost=len(self._waiting))  # what came to its end with the server

    def _send_all(self) -> None:
        while True:
            if not self._closing and len(self._waiting) < BATCH:
                self._wake.wait(SEND_SECONDS)
                self._wake.clear()
            batch = self._batch()
            if batch is None and self._closing:
                return
            pause = SEND_SECONDS
            while batch is not None and not self._delivered(*batch):
                if self._closing:
                    self.tally.add(lost=batch[1])
                    return
                self._wake.wait(pause)
                self._wake.clear()
                pause = min(2 * pause, MAX_PAUSE)

    def _batch(self) -> tuple[bytes, int] | None:
        """What waits, encoded, and how many requests are in that."""
        if not self._waiting:
            return None
        batch, number, written = Batch(self._resource, self._version), 0, 0
        while self._waiting and number < BATCH:
            record = self._waiting.popleft()
            number += 1
            try:
                assert record.trace is not None, "only what is traced waits"
                batch.add(record.trace, spans_of(record, record.trace))
                written += 1
            except Exception:
                self.tally.add(lost=1)
                if not self._odd:
                    logger.exception("The trace of request %s cannot be written; others are.", record.id)
                self._odd = True
            if number % POLITE == 0:
                time.sleep(0)  # whoever answers requests goes first
        return batch.encode(), written

    def _delivered(self, body: bytes, number: int) -> bool:
        """Whether that is done with: taken, or never going to be."""
        try:
            self._collector.send(body)
        except UndeliveredError as error:
            if not error.later:
                self.tally.add(lost=number)
            if not self._failing:
                self._failing = True
                logger.warning(
                    "Traces cannot be sent to %s (%s); check tracing.endpoint and the collector there. "
                    "Requests go on, and the traces of %d are kept for it.",
                    self._collector.url,
                    error,
                    KEPT,
                )
            return not error.later
        if self._failing or (self._behind and len(self._waiting) < KEPT // 2):
            self._failing = self._behind = False
            lost = self.tally.lost
            logger.warning("Traces are sent again; those of %d requests were lost.", lost - self._told)
            self._told = lost
        self.tally.add(sent=number)
        return True
