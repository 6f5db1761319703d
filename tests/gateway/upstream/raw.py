"""A server that sends exactly the bytes a test wants, and tells what happened to its connections."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType

from penstock.gateway.upstream import Origin


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes


class Peer:
    """One connection, seen from the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: RawServer) -> None:
        self._reader = reader
        self._writer = writer
        self._server = server

    async def asked(self) -> Asked:
        """The next request; IncompleteReadError if the client hangs up instead."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)}
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        asked = Asked(line, headers, body)
        self._server.requests.append(asked)
        self._server.asked.set()
        return asked

    async def send(self, *pieces: bytes) -> None:
        """Each piece in a packet of its own, as far as that can be had."""
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            if len(pieces) > 1:
                await asyncio.sleep(0.002 if len(pieces) < 20 else 0)

    def reset(self) -> None:
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the client hangs up."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass
        self._server.hung_up.set()


Handler = Callable[[Peer], Awaitable[None]]


@dataclass
class RawServer:
    """`async with RawServer(handler) as server`; a handler that returns closes its connection."""

    handler: Handler
    tls: ssl.SSLContext | None = None
    requests: list[Asked] = field(default_factory=list)
    connections: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = (
            f"http{'s' if self.tls else ''}://localhost:{port}" if self.tls else f"http://127.0.0.1:{port}"
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
                await self.handler(Peer(reader, writer, self))
        finally:
            self._tasks.discard(task)
            writer.close()


async def without_connections(origin: Origin) -> None:
    """Wait until it has noticed that each of its connections was closed; the test's timeout is the limit."""
    while origin._connections:  # noqa: ASYNC110 (what is watched is a set)
        await asyncio.sleep(0.001)


def plain(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """An answer with Content-Length."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body


def chunked(*pieces: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """An answer in chunks."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body + end


def always(*pieces: bytes) -> Handler:
    """Every request gets these bytes, and the connection stays open."""

    async def handler(peer: Peer) -> None:
        while True:
            await peer.asked()
            await peer.send(*pieces)

    return handler


def once(*pieces: bytes) -> Handler:
    """The first request gets these bytes, and then the connection is closed."""

    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(*pieces)

    return handler
