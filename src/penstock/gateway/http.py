"""The HTTP/1.1 connection: uvicorn's, with limits on the size and time of a head, and without pipelining."""

from __future__ import annotations

import asyncio
import re
from asyncio import TimerHandle
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from penstock.gateway.app import MAX_HEADER_BYTES
from penstock.protocol.errors import HTTPError, failure

HEAD_SECONDS = 30.0
STALL_SECONDS = 60.0  # a client that takes nothing for so long has gone, whatever its connection says


_UPGRADE = re.compile(rb"(?<=\r\n)upgrade:", re.IGNORECASE)


class LimitedHTTPProtocol(HttpToolsProtocol):
    """The parser keeps an endless head in memory for ever; here it is cut off.

    A request sent before the one before it was answered would keep that one from noticing that its
    client has left. It is not read; the connection closes after the first answer, as HTTP allows.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True
        self._head_bytes = 0
        self._head_timer: TimerHandle | None = None
        self._deaf = False  # a pipelined request has come: nothing further is read
        self._barren = 0  # bytes since the head, or since the last of the body, that were neither
        self._stall_timer: TimerHandle | None = None
        self._when_lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_stall_timer()
        super().connection_lost(exc)
        self._lose()

    def eof_received(self) -> None:
        """From here on it is lost: what is written now is dropped, and must not be billed."""
        super().eof_received()
        if self.cycle is not None:
            self.cycle.disconnected = True  # or uvicorn would miss the rest of its answer
        self._lose()

    def _lose(self) -> None:
        if self._when_lost is not None:
            self._when_lost()

    def when_lost(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` when the client hangs up; a task that waits for it would cost more than the answer."""
        if self.transport.is_closing():
            self.loop.call_soon(act)
        self.flow.resume_reading()  # a long body stops it, and then nobody would see the end
        self._when_lost = act

        def forget() -> None:
            # The next request may have come while the last one's work was being cleared away.
            if self._when_lost is act:
                self._when_lost = None

        return forget

    def pause_writing(self) -> None:
        """The client does not take what is written. If that lasts, it holds a replica's place for nothing."""
        super().pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def write_part(self, data: bytes) -> bool:
        """A part of a stream in one write. What needs more thought goes the long way, through `send`."""
        cycle = self.cycle
        if not data:
            return True  # a part without bytes would be the end
        if cycle is None or self.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def hang_up(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._in_head:
            self._head_bytes += len(data)
            data = _without_upgrade(data)
        else:
            self._barren += len(data)
        super().data_received(data)
        if self._barren > MAX_HEADER_BYTES:
            self.transport.abort()  # trailers without end, or something like it
            return
        if self._in_head and self._head_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            message = f"The headers are larger than {MAX_HEADER_BYTES} bytes."
            self._refuse(HTTPError(431, message, code="headers_too_large"))

    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._deaf = True
            self.cycle.keep_alive = False
            return
        super().on_message_begin()
        self._expect_head()

    def on_url(self, url: bytes) -> None:
        if not self._deaf:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes behind the body is no header: a proxy in front has not seen it as one.
        if not self._deaf and self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._deaf:
            self._in_head = False
            self._barren = 0
            self._stop_timer()
            self.scope["penstock.connection"] = self  # type: ignore[typeddict-unknown-key]
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._barren = 0
        if not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._deaf:
            super().on_message_complete()
            self._in_head = True  # whatever comes next is another one
            self._head_bytes = self._barren = 0

    def send_400_response(self, msg: str) -> None:
        if self._deaf:
            return  # what cannot be parsed is the part that is not read anyway
        self._refuse(HTTPError(400, "This is not a valid HTTP request.", code="invalid_http"))

    def _expect_head(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._stop_timer()
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_too_slow)

    def _head_too_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, error: HTTPError) -> None:
        """Answer before there is a request to hand on, and hang up."""
        body = failure(error).encode()
        self.transport.write(
            STATUS_LINE[error.status]
            + b"content-type: application/json\r\nconnection: close\r\n"
            + b"content-length: %d\r\n\r\n" % len(body)
            + body
        )
        self.transport.close()


def _without_upgrade(data: bytes) -> bytes:
    """We offer no other protocol, and may ignore the wish for one; the parser would drop the body with it."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"x-upgrade:", head) + end + rest if _UPGRADE.search(head) else data
