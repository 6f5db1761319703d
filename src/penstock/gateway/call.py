"""One HTTP exchange: reading a bounded body, answering once, streaming, noticing that the client left."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Protocol

import msgspec
from starlette.types import Message, Receive, Scope, Send

from penstock.protocol import sse
from penstock.protocol.decode import shown
from penstock.protocol.errors import Failure, HTTPError

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
BODY_SECONDS: Final = 60.0
CLIENT_LEFT: Final = 499  # how the metrics count a client that did not wait for its answer
REQUEST_ID: Final = re.compile(rb"[\x21-\x7e]{1,128}")

_JSON: Final = b"application/json"


class ClientGoneError(Exception):
    """The client closed the connection: there is nobody to answer."""


class Connection(Protocol):
    """What our own server offers in the scope: hearing of the connection's end without a task that waits."""

    def when_lost(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` when it is lost; returns what ends the watch."""

    def write_part(self, data: bytes) -> bool:
        """Write a part of a stream at once, with less ado than a message. False: it must be a message."""

    def hang_up(self) -> None:
        """End it at once, whatever was not written yet."""


def _headers(given: Collection[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The last of each name. Of ours all, as a list: whoever reads one that must be single refuses that, and
    nobody in front can have meant another than the one that counts."""
    headers = dict(given)
    if len(headers) != len(given):
        for name in headers:
            if name.startswith(b"x-penstock-"):
                headers[name] = b", ".join(value for each, value in given if each == name)
    return headers


class Call:
    """The request and its answer. `status` is 0 until the answer has begun; `blocked`: seconds for which the
    client did not take what was written."""

    __slots__ = ("_connection", "_receive", "_send", "blocked", "headers", "id", "scope", "shaped", "status")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.headers = _headers(scope["headers"])
        given = self.headers.get(b"x-request-id", b"")
        self.id = given.decode() if REQUEST_ID.fullmatch(given) else secrets.token_hex(16)
        self.status = 0
        self.blocked = 0.0
        self.shaped: Callable[[Failure, str], bytes] | None = None  # errors, where not as OpenAI's
        self._connection: Connection | None = scope.get("penstock.connection")
        self._receive = receive
        self._send = send

    async def body(self) -> bytes:
        """The JSON body's bytes. Counted while they arrive: Content-Length may be absent or lie."""
        self._check_headers()
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > MAX_BODY_BYTES:
                        raise _too_large()
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise HTTPError(
                408,
                f"The body did not arrive within {BODY_SECONDS:g} seconds.",
                code="request_timeout",
                headers={"Connection": "close"},
            ) from None

    def _check_headers(self) -> None:
        kind = self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != _JSON:
            given = shown(kind.decode("latin-1")) if kind else "no Content-Type"
            raise HTTPError(
                415,
                f"The body must be application/json, got {given}.",
                code="unsupported_media_type",
            )
        # "identity" too: the header has no such value, and whoever sends it means something else.
        encoding = self.headers.get(b"content-encoding", b"").strip()
        if encoding:
            given = shown(encoding.decode("latin-1"))
            raise HTTPError(
                415,
                f"A Content-Encoding is not supported, got {given}; send the body as it is.",
                code="unsupported_content_encoding",
            )
        length = self.headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > MAX_BODY_BYTES:
            raise _too_large()

    def when_left(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` when the client hangs up; returns what ends the watch. The body must have been read."""
        if self._connection is not None:
            return self._connection.when_lost(act)
        watcher = asyncio.create_task(self._watch(act))

        def stop() -> None:
            watcher.cancel()

        return stop

    async def _watch(self, act: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        act()

    async def answer(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: bytes = _JSON,
        fields: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        await self._start(
            status, [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *fields]
        )
        await self._send({"type": "http.response.body", "body": body})

    async def answer_json(self, message: Any, *, status: int = 200) -> None:
        await self.answer(msgspec.json.encode(message), status=status)

    async def answer_failure(self, failure: Failure) -> None:
        fields = [(name.lower().encode(), value.encode("latin-1")) for name, value in failure.headers.items()]
        body = failure.encode() if self.shaped is None else self.shaped(failure, self.id)
        await self.answer(body, status=failure.status, fields=fields)

    async def answer_nothing(self, headers: dict[str, str]) -> None:
        await self._start(204, [(name.lower().encode(), value.encode()) for name, value in headers.items()])
        await self._send({"type": "http.response.body"})

    async def start_stream(self, fields: Iterable[tuple[bytes, bytes]] = ()) -> None:
        headers = [
            (b"content-type", sse.CONTENT_TYPE),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),  # a buffering proxy would turn the stream into one lump
            *fields,
        ]
        await self._start(200, headers)

    def hang_up(self) -> None:
        """Leave a client that takes nothing any more; whoever answers it finds it gone."""
        if self._connection is not None:
            self._connection.hang_up()

    async def write(self, data: bytes) -> None:
        """A part of a stream that has been started."""
        if self._connection is not None and self._connection.write_part(data):
            return
        await self._send_part({"type": "http.response.body", "body": data, "more_body": True})

    async def end_stream(self, data: bytes) -> None:
        await self._send_part({"type": "http.response.body", "body": data})

    async def _send_part(self, message: Message) -> None:
        """Waits until the client has taken most of what was written before."""
        before = time.monotonic()
        try:
            await self._send(message)
        finally:
            self.blocked += time.monotonic() - before

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        headers.append((b"x-request-id", self.id.encode()))
        message: Message = {"type": "http.response.start", "status": status, "headers": headers}
        await self._send(message)


def _too_large() -> HTTPError:
    return HTTPError(
        413, f"The body is larger than {MAX_BODY_BYTES} bytes; send a shorter one.", code="body_too_large"
    )
