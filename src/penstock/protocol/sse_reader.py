"""Reading server-sent events out of a body that arrives in pieces, cut anywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import PenstockError

MAX_EVENT_BYTES = 8 * 1024 * 1024

_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventError(PenstockError):
    """The body is no stream of events."""


@dataclass(frozen=True, slots=True)
class Event:
    name: bytes  # empty: the stream gave none
    data: bytes


class EventReader:
    """Feed it the body; it gives each event once, as soon as the empty line behind it is there."""

    __slots__ = ("_buffer", "_data", "_name", "_size")

    def __init__(self) -> None:
        self._buffer = b""
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0  # bytes of the event so far

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises EventError for one that grows without end."""
        lines = _LINE_END.split(self._buffer + data)
        self._buffer = lines.pop()
        if not self._buffer and data.endswith(b"\r"):
            # Whether a line feed follows is not known yet: the two would be one end of a line.
            self._buffer = lines.pop() + b"\r"
        events: list[Event] = []
        for line in lines:
            self._size += len(line)
            if line:
                self._take(line)
            elif self._data:
                events.append(Event(self._name, b"\n".join(self._data)))
                self._clear()
            else:
                self._clear()
        if self._size + len(self._buffer) > MAX_EVENT_BYTES:
            raise EventError(f"An event of the stream is larger than {MAX_EVENT_BYTES} bytes.")
        return events

    @property
    def pending(self) -> bool:
        """Whether the body ended, so far, inside an event."""
        return bool(self._buffer or self._data)

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value

    def _clear(self) -> None:
        self._name, self._data, self._size = b"", [], 0
