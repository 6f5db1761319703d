"""What each front process knows of itself, told over sockets in the folder that all of them share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType

GATHER_SECONDS = 2.0  # for a process to answer


class Offer:
    """A page on a socket, made for each who connects."""

    def __init__(self, path: Path, make: Callable[[], Awaitable[bytes]]) -> None:
        self._path = path
        self._make = make
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Offer:
        self._path.unlink(missing_ok=True)  # of a process that died
        self._server = await asyncio.start_unix_server(self._offer, self._path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def _offer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            try:
                writer.write(await self._make())
                await writer.drain()
            finally:
                writer.close()
            await writer.wait_closed()


async def fetch(path: Path, seconds: float = GATHER_SECONDS) -> bytes:
    """Raises TimeoutError if the process does not answer in time, another OSError if it is gone."""
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            return await reader.read()
        finally:
            writer.close()


class Pages:
    """Each process offers its page of a kind to all others."""

    def __init__(self, folder: Path, kind: str, number: int, render: Callable[[], bytes]) -> None:
        self._folder = folder
        self._kind = kind
        self._path = folder / f"{kind}-{number}.sock"
        self._render = render
        self._offer = Offer(self._path, self._rendered)

    async def __aenter__(self) -> Pages:
        await self._offer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._offer.__aexit__(kind, error, trace)

    async def others(self) -> Sequence[bytes]:
        """The pages of all other processes that answer."""
        paths = [path for path in self._folder.glob(f"{self._kind}-*.sock") if path != self._path]
        pages = await asyncio.gather(*map(fetch, paths), return_exceptions=True)
        return [page for page in pages if isinstance(page, bytes) and page]

    async def _rendered(self) -> bytes:
        return self._render()
