"""What each front process knows of itself, told to whichever of them is asked about all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

GATHER_SECONDS = 2.0  # a process that does not answer is left out


class Pages:
    """Each process offers its page of a kind on a socket in the folder that all share."""

    def __init__(self, folder: Path, kind: str, number: int, render: Callable[[], bytes]) -> None:
        self._folder = folder
        self._kind = kind
        self._path = folder / f"{kind}-{number}.sock"
        self._render = render
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Pages:
        self._path.unlink(missing_ok=True)  # of a process that died
        self._server = await asyncio.start_unix_server(self._offer, self._path)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def others(self) -> Sequence[bytes]:
        """The pages of all other processes that answer."""
        paths = [path for path in self._folder.glob(f"{self._kind}-*.sock") if path != self._path]
        pages = await asyncio.gather(*(_page(path) for path in paths))
        return [page for page in pages if page]

    async def together(self) -> Sequence[bytes]:
        """Those, and this one's own."""
        return [self._render(), *await self.others()]

    async def _offer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(self._render())
            await writer.drain()
            writer.close()
            await writer.wait_closed()


async def _page(path: Path) -> bytes:
    try:
        async with asyncio.timeout(GATHER_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                return await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""
