"""What is written to a client, recorded on its way: for those who follow it, and to be kept."""

from __future__ import annotations

from typing import Final

from penstock.gateway.cache.assemble import assembled
from penstock.gateway.cache.entry import (
    MAX_ENTRY_BYTES,
    Counted,
    Entry,
    entry_of_answer,
    entry_of_whole,
)
from penstock.gateway.cache.flight import Flight
from penstock.gateway.cache.key import Question
from penstock.gateway.cache.named import ended_named
from penstock.protocol.shapes import UsageCount

_MAX_STREAM: Final = 4 * MAX_ENTRY_BYTES  # events say the same in more bytes


class Recorder:
    """The tap on one exchange."""

    def __init__(self, flight: Flight | None) -> None:
        self._flight = flight
        self._parts: list[bytes] = []
        self.size = 0  # bytes
        self._streams = False
        self.complete = False  # an answer was written to its end
        self._again = False  # a second answer was begun: what was recorded is not what the client got
        self._usage: UsageCount | None = None  # of a whole answer

    def whole(self, body: bytes, usage: UsageCount | None, status: int) -> None:
        self._begin()
        self._add(body)
        self._usage = usage
        self.complete = status == 200

    def began(self) -> None:
        self._begin()
        self._streams = True

    def part(self, data: bytes) -> None:
        if self._flight is not None:
            self._flight.add(data)
        self._add(data)

    def ended(self, data: bytes) -> None:
        self.part(data)
        self.complete = True

    def keeps(self) -> bool:
        return self._flight is not None and self._flight.followers > 0

    def _begin(self) -> None:
        if self._parts or self._streams:
            self._again = True
            if self._flight is not None:
                self._flight.lose()

    def _add(self, data: bytes) -> None:
        self.size += len(data)
        if self.size <= _MAX_STREAM:
            self._parts.append(data)
            return
        self._parts = []
        if self._flight is not None and not self._flight.followers:
            self._flight.lose()  # nobody needs it, and nobody should begin to
            self._flight = None

    def entry(self, question: Question, usage: UsageCount, model: str, now: float) -> Entry | None:
        """What can be kept of it. `usage`: as delivered; `model`: as the server calls it. May take long for
        an answer of many bytes; then another thread can do it, once all has been recorded."""
        if not self.complete or self._again or self.size > _MAX_STREAM:
            return None
        data, operation = b"".join(self._parts), question.operation
        if not self._streams:
            whole = self._usage or usage
            return entry_of_whole(operation, data, whole, model, now, parts=question.parts)
        if operation.endswith("Completion"):
            answer = assembled(operation, data)
            return entry_of_answer(operation, answer, usage, model, now, parts=question.parts)
        ended = ended_named(operation, data)
        if ended is None or len(data) > MAX_ENTRY_BYTES:
            return None
        return Entry(operation, data, Counted.of(usage), model, now, events=True, ended=ended)
