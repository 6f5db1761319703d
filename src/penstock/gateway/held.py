"""An answer that is held back: written as if to the client, and sent, or forgotten, when that is decided."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from penstock.gateway.exchange import AnyCall, Header, Tap
from penstock.protocol.shapes import UsageCount

MAX_HELD_BYTES: Final = 1024 * 1024  # of a stream; a whole answer was in memory before it came here


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that is no stream, as it was given to the call."""

    body: bytes
    status: int
    content_type: bytes
    fields: list[Header]


class HeldCall:
    """Stands in for a client's call. Its `status` is 0 while it holds, so that the request counts as not
    started and can be given to somebody else. The client gets no byte before the release.

    One answer is held at a time: a new beginning forgets what was there. After each part of a stream that is
    not its last, `written` is called: it may release what is held, or raise DiscardedError, which ends the
    work on it. Once released, everything passes straight through.
    """

    __slots__ = ("_call", "_ended", "_fields", "_parts", "_size", "_whole", "_written", "released")

    def __init__(self, call: AnyCall, written: Callable[[], Awaitable[None]]) -> None:
        self._call = call
        self._written = written
        self._whole: Whole | None = None
        self._fields: list[Header] | None = None  # of a stream
        self._parts: list[bytes] = []
        self._size = 0
        self._ended = False
        self.released = False

    @property
    def id(self) -> str:
        return self._call.id

    @property
    def headers(self) -> dict[bytes, bytes]:
        return self._call.headers

    @property
    def status(self) -> int:
        return self._call.status

    @property
    def whole(self) -> Whole | None:
        """What is held, if it is no stream."""
        return self._whole

    @property
    def stream(self) -> bytes | None:
        """The events that are held, of a stream that has begun."""
        if self._fields is None:
            return None
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""

    @property
    def size(self) -> int:
        """Bytes of the stream that are held."""
        return self._size

    @property
    def ended(self) -> bool:
        """Whether all of the answer is here."""
        return self._whole is not None or self._ended

    def when_left(self, act: Callable[[], None]) -> Callable[[], None]:
        return self._call.when_left(act)

    async def answer(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: bytes = b"application/json",
        fields: Iterable[Header] = (),
    ) -> None:
        if self.released:
            await self._call.answer(body, status=status, content_type=content_type, fields=fields)
            return
        self.discard()
        self._whole = Whole(body, status, content_type, list(fields))

    async def start_stream(self, fields: Iterable[Header] = ()) -> None:
        if self.released:
            await self._call.start_stream(fields)
            return
        self.discard()
        self._fields = list(fields)

    async def write(self, data: bytes) -> None:
        if self.released:
            await self._call.write(data)
            return
        self._parts.append(data)
        self._size += len(data)
        await self._written()

    async def end_stream(self, data: bytes) -> None:
        if self.released:
            await self._call.end_stream(data)
            return
        self._parts.append(data)
        self._ended = True

    async def release(self) -> None:
        """Send what is held, in one part, and hold nothing any more."""
        whole, fields, data, ended = self._whole, self._fields, self.stream, self._ended
        self.released = True
        self.discard()
        if whole is not None:
            await self._call.answer(
                whole.body, status=whole.status, content_type=whole.content_type, fields=whole.fields
            )
        elif fields is not None:
            await self._call.start_stream(fields)
            if ended:
                await self._call.end_stream(data or b"")
            elif data:
                await self._call.write(data)

    def discard(self) -> None:
        """Forget what is held."""
        self._whole = self._fields = None
        self._parts = []
        self._size, self._ended = 0, False


class HeldTap:
    """Stands in for who taps an exchange, who must not see an answer that nobody gets."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._seen: list[Callable[[], None]] = []

    def whole(self, body: bytes, usage: UsageCount | None, status: int) -> None:
        uncharged = None if usage is None else replace(usage)
        self._seen = [partial(self._tap.whole, body, uncharged, status)]

    def began(self) -> None:
        self._seen = [self._tap.began]

    def part(self, data: bytes) -> None:
        self._seen.append(partial(self._tap.part, data))

    def ended(self, data: bytes) -> None:
        self._seen.append(partial(self._tap.ended, data))

    def keeps(self) -> bool:
        return self._tap.keeps()

    def release(self) -> None:
        """Show it what was held, in order."""
        for show in self._seen:
            show()
        self._seen = []
