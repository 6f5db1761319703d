"""One HTTP connection to the measured server: one request at a time, kept open between them.

Written on the bare protocol: a general client costs several times as much for each chunk, and
that time is taken from a server on the same machine.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import cast
from urllib.parse import urlsplit

import httptools
import msgspec

from penstock.bench.answer import Answer
from penstock.bench.target import Target
from penstock.bench.workloads import Job
from penstock.errors import ConfigError

LINGER_SECONDS = 1.0  # for the end of a response after [DONE]


class Connection(asyncio.Protocol):
    """`ask` gives a future that is done when the answer is over, well or not: its timing tells."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self._over: asyncio.Future[None] | None = None
        self._now = 0.0
        self._transport: asyncio.Transport | None = None
        self.heard = False  # any byte of the present answer
        self.usable = False

    def ask(self, request: bytes, answer: Answer) -> asyncio.Future[None]:
        assert self._transport is not None
        self._answer, self._over = answer, asyncio.get_running_loop().create_future()
        self.heard = False
        self._transport.write(request)
        return self._over

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def give_up(self, reason: str) -> None:
        """End the present answer: its server hangs. Nothing is wrong with one that lacks only its end."""
        if (answer := self._answer) is not None and not answer.done:
            answer.timing.timed_out = True
            answer.timing.error = answer.timing.error or reason
        self._finish()
        self.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True

    def data_received(self, data: bytes) -> None:
        self._now = time.perf_counter()
        self.heard = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._answer is not None:
                self._answer.timing.error = self._answer.timing.error or f"That is no HTTP: {error}."
            self._finish()
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._answer is not None:
            if not self.heard:
                self._answer.timing.error = f"The connection was closed without an answer{_why(exc)}."
            self._answer.end(time.perf_counter())
            self._finish()

    # -- what the parser found

    def on_headers_complete(self) -> None:
        if self._answer is not None:
            self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self._answer is not None:
            self._answer.feed(body, self._now)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # "continue": the answer is still to come
            return
        if not self._parser.should_keep_alive():
            self.usable = False
        if self._answer is not None:
            self._answer.end(self._now)
            self._finish()

    def _finish(self) -> None:
        over, self._answer, self._over = self._over, None, None
        if over is not None and not over.done():
            over.set_result(None)


class Dialer:
    """Opens connections to one server and writes its requests."""

    def __init__(self, target: Target) -> None:
        parts = urlsplit(target.url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._tls = ssl.create_default_context() if secure else None
        self._target = target
        self._address: str | None = None  # the one of the host's that answered
        lines = [
            f"POST {parts.path.rstrip('/')}{target.path} HTTP/1.1",
            f"Host: {parts.netloc.rpartition('@')[2]}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            "User-Agent: penstock-bench",
            *(f"{name}: {value}" for name, value in target.headers.items()),
        ]
        if not all(line.isascii() and line.isprintable() for line in lines):
            raise ConfigError("The address or the API key has characters that HTTP cannot carry; correct it.")
        self._head = "\r\n".join(lines).encode("ascii")

    def request(self, job: Job) -> bytes:
        body = msgspec.json.encode(self._target.body(job))
        return b"%b\r\nContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body)

    async def connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(
            Connection,
            self._address or self._host,
            self._port,
            ssl=self._tls,
            server_hostname=self._host if self._tls else None,
        )
        if self._address is None:
            self._address = transport.get_extra_info("peername")[0]
        return connection


def _why(error: Exception | None) -> str:
    return f": {error}" if error else ""
