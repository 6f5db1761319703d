"""Work that may take long, kept off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from penstock.errors import QueueFullError

T = TypeVar("T")

# Long bodies that may wait for a thread; each of them may have several megabytes.
MAX_PENDING: Final = 64
# Shorter bodies and answers take less time than the detour through a thread; the event loop can bear them.
INLINE_BYTES: Final = 8192


class Readers:
    """Threads that read bodies."""

    def __init__(self) -> None:
        self._pending = 0
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="read")

    async def read(self, size: int, work: Callable[[], T]) -> T:
        """Read a body of `size` bytes with `work`: in a thread, unless it is small.

        The body's size decides, not what is in it: whatever may be long has to be in there.
        """
        if size > INLINE_BYTES and self._pending >= MAX_PENDING:
            raise QueueFullError(f"{self._pending} long prompts are waiting to be tokenized; try again.")
        self._pending += 1
        try:
            return await apart(self._pool, size, work)
        finally:
            self._pending -= 1


async def apart(pool: ThreadPoolExecutor, size: int, work: Callable[[], T]) -> T:
    """Do `work` on `size` bytes in the pool, unless they are few."""
    if size <= INLINE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(pool, work)
