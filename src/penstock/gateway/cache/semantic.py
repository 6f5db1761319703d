"""Questions that say the same in other words: candidates by embedding, accepted by the verifier alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.gateway.cache.index import MAX_ROWS, VectorIndex
from penstock.gateway.cache.verify import MAX_CHARACTERS, accept

T = TypeVar("T")
Embed: TypeAlias = Callable[[Sequence[str]], NDArray[np.float32]]

CANDIDATES: Final = 8  # of the nearest questions the verifier looks at
MAX_PENDING: Final = 64  # questions that wait for the one thread; others go without


class SemanticFinder:
    """Which answer that is kept fits a question. All its work is done in one thread of its own, in order."""

    def __init__(
        self,
        embed: Embed,
        width: int,
        *,
        similarity: float,
        ttl: float,
        clock: Callable[[], float],
        max_rows: int = MAX_ROWS,
    ) -> None:
        """`similarity`: the least that the verifier is asked at; `ttl`: seconds that a question is kept."""
        self._embed = embed
        self._similarity = similarity
        self._ttl = ttl
        self._clock = clock
        self._index = VectorIndex(width, max_rows)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="semantic")
        self._pending = 0

    def __len__(self) -> int:
        return len(self._index)

    async def find(self, partition: bytes, text: str) -> bytes | None:
        """The key of the answer to a question of this partition that asks the same; None: there is none."""
        if not _is_short(text):
            return None
        return await self._beside(lambda: self._find(partition, text))

    async def note(self, partition: bytes, text: str, key: bytes) -> None:
        """The answer to this question is kept under `key`."""
        if _is_short(text):
            await self._beside(lambda: self._note(partition, text, key))

    async def forget(self, partition: bytes, key: bytes) -> None:
        """What was kept under `key` is not any more."""
        await self._beside(lambda: self._index.remove_key(partition, key))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _beside(self, work: Callable[[], T]) -> T | None:
        if self._pending >= MAX_PENDING:
            return None  # a hit is not worth a queue
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._pending -= 1

    def _find(self, partition: bytes, text: str) -> bytes | None:
        vector = self._embed([text])[0]
        near = self._index.nearest(partition, vector, self._similarity, self._clock(), CANDIDATES)
        for neighbour in near:
            if accept(text, neighbour.text, neighbour.similarity).accept:
                self._index.use(partition, neighbour.text)
                return neighbour.key
        return None

    def _note(self, partition: bytes, text: str, key: bytes) -> None:
        self._index.add(partition, text, self._embed([text])[0], key, self._clock() + self._ttl)


def _is_short(text: str) -> bool:
    """The verifier accepts nothing longer but the same text, and that is found by its key."""
    return 0 < len(text) <= MAX_CHARACTERS
