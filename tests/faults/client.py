"""A client that loses nothing of what it is sent: not even what comes after it has hung up.

It hangs up by closing its own half of the connection. The server sees the end of it and writes no more;
what it had written by then is still read here, so what was delivered is known exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CONTENT = (b'"content":"', b'"text":"')  # in chunks that have text; its own quotes would be escaped
SECONDS = 120.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes  # of a stream, all events
    left: bool = False  # the client hung up before the end

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> Iterator[Any]:
        for event in self.body.split(b"\n\n"):
            if event.startswith(b"data: ") and event != b"data: [DONE]":
                yield json.loads(event[6:])

    @property
    def done(self) -> bool:
        return self.body.endswith(b"data: [DONE]\n\n")


class Client:
    """Keeps connections that can be used again. For one event loop."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(
        self,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None = None,
        leave_after: int | None = None,
        abruptly: bool = False,
    ) -> Answer:
        """One exchange. With `leave_after` it hangs up once a stream has brought so many texts, and reads
        what was written by then; `abruptly` it reads nothing more."""
        data = json.dumps(body).encode()
        fields = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = (
            f"POST {path} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n"
            f"{fields}content-length: {len(data)}\r\n\r\n"
        )
        async with asyncio.timeout(SECONDS):
            reader, writer = await self._connection()
            try:
                writer.write(head.encode() + data)
                answer, reusable = await _read(reader, writer, leave_after, abruptly)
            except BaseException:
                writer.transport.abort()
                raise
        if reusable:
            self._idle.append((reader, writer))
        else:
            await _closed(writer)
        return answer

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        for _, writer in self._idle:
            await _closed(writer)

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            await _closed(writer)
        return await asyncio.open_connection(*self._address)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def _read(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, leave_after: int | None, abruptly: bool
) -> tuple[Answer, bool]:
    left = leave_after == 0
    if left:
        writer.write_eof()
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        if not left:
            raise
        return Answer(0, {}, b"", left), False
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    status = int(first.split(" ")[1])
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
        return Answer(status, headers, body, left), not left and headers.get("connection") != "close"
    raw = b""
    while not raw.endswith(b"\r\n0\r\n\r\n"):
        part = await reader.read(1 << 16)
        if not part:
            break
        raw += part
        if leave_after is not None and not left and sum(map(raw.count, CONTENT)) >= leave_after:
            left = True
            if abruptly:
                writer.transport.abort()
                break
            writer.write_eof()
    return Answer(status, headers, _joined(raw), left), not left


def _joined(raw: bytes) -> bytes:
    """The content of HTTP chunks; of one that is cut off, what there is."""
    parts, at = [], 0
    while (end := raw.find(b"\r\n", at)) > 0:
        size = int(raw[at:end], 16)
        parts.append(raw[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(parts)
