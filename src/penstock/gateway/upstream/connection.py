"""One connection to a server: one request at a time, its answer parsed as it comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from penstock.gateway.upstream.errors import UpstreamError
from penstock.gateway.upstream.response import HIGH_WATER, Response

if TYPE_CHECKING:
    from penstock.gateway.upstream.origin import Origin

MAX_HEAD_BYTES: Final = 64 * 1024  # of a head, of trailers, or of anything else that is not body


class Connection(asyncio.Protocol):
    """The parser calls `on_header` and `on_body` for every field and every piece, so both are methods of
    a dict and a list: no Python runs for them."""

    def __init__(self, origin: Origin, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.closed = False
        self.idle_since = 0.0  # when it was last put back
        self._origin = origin
        self._response: Response | None = None
        self._parts: list[bytes] = []
        self._fields: dict[bytes, bytes] = {}
        self.on_body = self._parts.append
        self.on_header = self._fields.__setitem__
        self._parser = HttpResponseParser(self)
        self._feed = self._parser.feed_data
        self._transport: asyncio.Transport
        self._complete = False  # the answer has ended; what follows is none of it
        self._spent = False  # it can serve no other request
        self._whole = 0  # pieces of body that the answer had when it ended
        self._barren = 0  # bytes since the last piece of body
        # For the timeouts; a counter costs the path of a chunk less than asking the time does.
        self._reads = 0
        self._reads_seen = 0
        self._sent_at = 0.0
        self._quiet_since = 0.0
        self._first_byte = 0.0
        self._idle = 0.0

    # ------------------------------------------------------------------ requests

    def send(self, data: bytes, first_byte: float, idle: float) -> Response:
        """Send a request. `first_byte` and `idle`: seconds in which body must come, and between pieces."""
        response = self._response = Response(self, self._parts)
        self._complete = False
        self._barren = 0
        self._reads = self._reads_seen = 0
        self._sent_at = self._quiet_since = self.loop.time()
        self._first_byte = first_byte
        self._idle = idle
        if self._transport.is_closing():
            self.fail(UpstreamError("reset", "The server closed the connection without an answer."))
        else:
            self._transport.write(data)
        return response

    def check(self, now: float) -> None:
        """Give up on a server that takes too long. Called every now and then."""
        response = self._response
        if response is None:
            return
        # Counted from the request: however slowly a head drips, it is no answer.
        if (response.due or not response.begun) and now - self._sent_at >= self._first_byte:
            what = "not sent its whole answer in" if response.begun else "sent no answer for"
            message = f"The server has {what} {self._first_byte:g} seconds."
            self.fail(UpstreamError("timeout", message))
            return
        if self._reads != self._reads_seen or response.paused:
            self._reads_seen = self._reads
            self._quiet_since = now
            return
        if response.begun and now - self._quiet_since >= self._idle:
            message = f"The server has sent nothing further for {self._idle:g} seconds."
            self.fail(UpstreamError("timeout", message))

    def fail(self, error: UpstreamError) -> None:
        """End the answer with this error, and hang up without waiting for anything."""
        response, self._response = self._response, None
        if response is not None:
            response.error = error
            response.parts = self._parts.copy()
            response.wake()
        self.abort()

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self._origin.forget(self)
            self._transport.abort()

    def resume_reading(self) -> None:
        if not self.closed:
            self._transport.resume_reading()

    # ------------------------------------------------------------------ what the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            self.abort()  # nobody asked
            return
        self._reads += 1
        try:
            self._feed(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._complete:
                self.fail(
                    UpstreamError("garbage", "The server's answer is not valid HTTP.", detail=repr(error))
                )
                return
            self._spent = True
        if self._complete:
            self._finish(response)
            return
        if self._parts:
            response.begun = True
            self._barren = 0
            response.held += len(data)
            if response.held > HIGH_WATER and not response.paused:
                response.paused = True
                self._transport.pause_reading()
        else:
            self._barren += len(data)
            if self._barren > MAX_HEAD_BYTES:
                message = f"The head of the server's answer has more than {MAX_HEAD_BYTES} bytes."
                self.fail(UpstreamError("garbage", message))
                return
        if response.status:
            response.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._origin.forget(self)
        response = self._response
        if response is None:
            return
        if response.status and exc is None and not _framed(response):
            self._spent = True  # such a body ends with the connection
            self._whole = len(self._parts)
            self._finish(response)
            return
        detail = "" if exc is None else repr(exc)
        if self._reads == 0:
            error = UpstreamError(
                "reset", "The server closed the connection without an answer.", detail=detail
            )
        else:
            message = "The server closed the connection in the middle of its answer."
            error = UpstreamError("closed_early", message, detail=detail)
        self.fail(error)

    def _finish(self, response: Response) -> None:
        """The answer is all here: hand over the rest, and put the connection back before anybody wakes."""
        self._response = None
        response.parts = self._parts[: self._whole]
        response.ended = True
        self._parts.clear()
        self._fields.clear()
        if not self.closed:
            transport = self._transport
            # A request still being written: the server has answered without reading it.
            if self._spent or transport.get_write_buffer_size():
                self.abort()
            else:
                if response.paused:
                    transport.resume_reading()
                self._origin.put_back(self)
        response.paused = False
        response.wake()

    # ------------------------------------------------------------------ what the parser says

    def on_message_begin(self) -> None:
        if self._complete:
            self._spent = True

    def on_headers_complete(self) -> None:
        response = self._response
        status = self._parser.get_status_code()
        if response is not None and status >= 200 and not self._complete:
            response.status = status
            response.fields = self._fields.copy()

    def on_message_complete(self) -> None:
        response = self._response
        if response is not None and response.status and not self._complete:
            self._complete = True
            self._whole = len(self._parts)
            if not self._parser.should_keep_alive():  # it can tell only here
                self._spent = True
        self._fields.clear()  # of a 1xx answer, or trailers


def _framed(response: Response) -> bool:
    """Whether the head says where the body ends."""
    return bool(response.header(b"content-length") or response.header(b"transfer-encoding"))
