"""The page for Prometheus: written in pieces, so that others have their turn between, and kept a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

from penstock.observe.catalogue import Families

KEPT_SECONDS: Final = 1.0
# A page below that takes no longer than any other answer and is made anew, so that it is never out of date.
KEPT_BYTES: Final = 256 << 10


def pieces(families: Families, *, vllm_names: bool) -> Iterator[list[str]]:
    """Its lines, some at a time."""
    for family in families.all:
        yield from family.lines()
        if family.spec.also and vllm_names:
            yield from family.lines(family.spec.also)


def text(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


async def unhurried(pieces: Iterable[list[str]]) -> bytes:
    """The page, while everybody else goes on: none of them waits for longer than one piece takes."""
    lines: list[str] = []
    for piece in pieces:
        lines += piece
        await asyncio.sleep(0)
    return text(lines)


class KeptPage:
    """Is made once, however many ask at the same time; a large one is the same for a second."""

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._making: asyncio.Task[bytes] | None = None
        self._page = b""
        self._until = 0.0  # seconds, monotonic

    async def __call__(self) -> bytes:
        if time.monotonic() < self._until:
            return self._page
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._made())
        return await asyncio.shield(self._making)  # who leaves takes it from nobody else

    async def _made(self) -> bytes:
        page = await self._make()
        if len(page) >= KEPT_BYTES:
            self._page, self._until = page, time.monotonic() + KEPT_SECONDS
        return page
