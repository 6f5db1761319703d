"""An answer as it is written, kept for a check: a tap on its exchange."""

from __future__ import annotations

from typing import Final

from penstock.aio.cascade import Heard, heard_stream, heard_whole
from penstock.gateway.exchange import Tap
from penstock.protocol.shapes import UsageCount

MOST_BYTES: Final = 1 << 20  # of an answer; longer ones are not checked


class AnswerTap:
    """Collects one answer beside whoever else wants to see it."""

    def __init__(self, beside: Tap | None) -> None:
        self._beside = beside
        self._parts: list[bytes] = []
        self._size = 0
        self._streams = False
        self._complete = False

    def whole(self, body: bytes, usage: UsageCount | None, status: int) -> None:
        if self._beside is not None:
            self._beside.whole(body, usage, status)
        self._begin(streams=False)
        self._add(body)
        self._complete = status == 200

    def began(self) -> None:
        if self._beside is not None:
            self._beside.began()
        self._begin(streams=True)

    def part(self, data: bytes) -> None:
        if self._beside is not None:
            self._beside.part(data)
        self._add(data)

    def ended(self, data: bytes) -> None:
        if self._beside is not None:
            self._beside.ended(data)
        self._add(data)
        self._complete = True

    def keeps(self) -> bool:
        return self._beside is not None and self._beside.keeps()

    def heard(self, asks: str) -> Heard | None:
        """What was answered to the operation `asks`; None for what did not come to its end."""
        if not self._complete or self._size > MOST_BYTES:
            return None
        data = b"".join(self._parts)
        return heard_stream(asks, data, ended=True) if self._streams else heard_whole(asks, data)

    def _begin(self, *, streams: bool) -> None:
        self._parts, self._size = [], 0
        self._streams, self._complete = streams, False

    def _add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= MOST_BYTES:
            self._parts.append(data)
