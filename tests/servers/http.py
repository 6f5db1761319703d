"""A small HTTP/1.1 server on loopback, for servers that speak other systems' protocols.

They are written from the protocols' descriptions, are deterministic, and misbehave when they are told to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """A whole answer, or with `stream` one in chunks. A stream that raises HangUp is cut off there."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    stream: AsyncIterator[bytes] | None = None


class HangUp(Exception):  # noqa: N818 (it is no error: it is asked for)
    """Close the connection now, whatever has been said."""


Handler = Callable[[Request], Awaitable[Reply]]


def answer(content: Any, status: int = 200, **headers: str) -> Reply:
    fields = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return Reply(status, json.dumps(content).encode(), fields)


class LocalServer:
    """`async with LocalServer(handler) as server`: it listens at `server.url` until the end."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[Request] = []
        self.asked = asyncio.Event()  # a request has come
        self.hung_up = asyncio.Event()  # a client left before the end of its stream
        self.url = ""

    async def __aenter__(self) -> LocalServer:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def refuse(self) -> None:
        """Take no further connections, as if the process had ended."""
        assert self._server is not None
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, HangUp):
                while (request := await _read(reader)) is not None:
                    self.requests.append(request)
                    self.asked.set()
                    await self._reply(await self._handler(request), reader, writer)
        except asyncio.CancelledError:
            pass  # the server is being closed
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _reply(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fields = dict(reply.headers)
        if reply.stream is None:
            fields["content-length"] = str(len(reply.body))
        else:
            fields["transfer-encoding"] = "chunked"
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        writer.write(f"HTTP/1.1 {reply.status} Status\r\n{lines}\r\n".encode() + reply.body)
        await writer.drain()
        if reply.stream is None:
            return
        try:
            async for chunk in reply.stream:
                if reader.at_eof():
                    raise ConnectionResetError
                writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                await writer.drain()
        except ConnectionError:
            self.hung_up.set()
            raise
        writer.write(b"0\r\n\r\n")
        await writer.drain()


Served = TypeVar("Served", bound=LocalServer)


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)


@contextlib.contextmanager
def in_a_thread(server: Served) -> Iterator[Served]:
    """The server on a loop of its own, for tests whose other side is a process or a blocking client."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
