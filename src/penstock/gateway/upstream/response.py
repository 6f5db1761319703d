"""An answer as it comes: status and headers first, then the body in pieces, with backpressure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.gateway.upstream.errors import UpstreamError

if TYPE_CHECKING:
    from penstock.gateway.upstream.connection import Connection

LAST_BYTES_SECONDS: Final = 1.0  # for the end of an answer that nobody waits for
HIGH_WATER: Final = 256 * 1024  # bytes that may wait for a consumer before the server is made to wait


class Response:
    """Close it, release it, or leave its `with`: an answer that nobody takes keeps its connection.

    `parts` is the connection's own list until the answer has ended, since the parser appends to it directly;
    from then on it is this answer's, and the connection may already serve another one.
    """

    __slots__ = (
        "_connection",
        "_released",
        "_waiter",
        "begun",
        "due",
        "ended",
        "error",
        "fields",
        "held",
        "parts",
        "paused",
        "status",
    )

    def __init__(self, connection: Connection, parts: list[bytes]) -> None:
        self._connection = connection
        self._released = False
        self._waiter: asyncio.Future[None] | None = None
        self.parts = parts
        self.held = 0  # bytes received since the consumer last took some
        self.paused = False
        self.status = 0  # until the head has come
        self.fields: dict[bytes, bytes] = {}  # as spelled by the server
        self.begun = False  # something of the body has come
        self.due = False  # the limit for the first byte holds on: what was waited for is not here yet
        self.ended = False
        self.error: UpstreamError | None = None

    def header(self, name: bytes) -> bytes:
        """The value, or nothing; `name` in lower case. Of several fields with one name the last."""
        value = self.fields.get(name)
        if value is not None:
            return value
        return next((value for key, value in self.fields.items() if key.lower() == name), b"")

    async def chunk(self) -> bytes:
        """What has come since the last call, at least a byte of it; nothing at the end of the body.

        A cancelled caller takes the connection with it, so that the server sees at once that nobody waits.
        """
        while not (parts := self.parts):
            if self.error is not None:
                raise self.error
            if self.ended:
                return b""
            await self.wait()
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self.held = 0
        if self.paused:
            self.paused = False
            self._connection.resume_reading()
        return data

    def __aiter__(self) -> Response:
        return self

    async def __anext__(self) -> bytes:
        data = await self.chunk()
        if not data:
            raise StopAsyncIteration
        return data

    async def read(self, limit: int) -> bytes:
        """The whole body, within the time that there is for a first byte: a part of it is of no use.

        UpstreamError "too_large" if it has more than `limit` bytes.
        """
        self.due = True
        declared = self.header(b"content-length")
        if declared and int(declared) > limit:  # digits: the parser has seen to that
            self._too_large(limit)
        body = await self.chunk()
        if self.ended and not self.parts and self.error is None and len(body) <= limit:
            return body
        chunks = [body]
        size = len(body)
        while body:
            if size > limit:
                self._too_large(limit)
            body = await self.chunk()
            size += len(body)
            chunks.append(body)
        return b"".join(chunks)

    def _too_large(self, limit: int) -> None:
        self.close()
        raise UpstreamError("too_large", f"The server's answer has more than {limit} bytes.")

    async def wait(self) -> None:
        """Return when something has happened."""
        waiter = self._waiter = self._connection.loop.create_future()
        try:
            await waiter
        except asyncio.CancelledError:
            self.close()
            raise

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """Hang up, unless all of it has come."""
        if not self.ended and self.error is None:
            self._connection.fail(UpstreamError("closed_early", "The answer was closed before its end."))

    def release(self) -> None:
        """Nobody waits for the rest, which should be little: it may still end properly, so that its
        connection can be used again, and is hung up on if it does not soon."""
        if not self.ended and not self._released:
            self._released = True
            self._connection.loop.call_later(LAST_BYTES_SECONDS, self.close)

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._released:
            self.close()
