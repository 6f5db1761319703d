"""Entries in this process's memory: the least recently used go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from penstock.gateway.cache.generations import Generations, OwnGenerations
from penstock.gateway.cache.store import StoreStats

_OVERHEAD: Final = 200  # bytes an entry takes beside its value: key, times, table


class MemoryStore:
    name = "memory"

    def __init__(self, max_entries: int, max_bytes: int, generations: Generations | None = None) -> None:
        """`generations`: shared with others, or its own."""
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()  # value, Unix time of its end
        self._bytes = 0
        self._generations = generations or OwnGenerations()

    async def read(
        self, key: bytes, scopes: Sequence[bytes], now: float
    ) -> tuple[bytes | None, tuple[int, ...]]:
        generations = tuple(map(self._generations.of, scopes))
        found = self._entries.get(key)
        if found is None:
            return None, generations
        value, expires = found
        if now >= expires:
            await self.delete(key)
            return None, generations
        self._entries.move_to_end(key)
        return value, generations

    async def write(self, key: bytes, value: bytes, ttl: float, now: float) -> None:
        await self.delete(key)
        if len(value) + _OVERHEAD > self._max_bytes:
            return
        self._entries[key] = value, now + ttl
        self._bytes += len(value) + _OVERHEAD
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            _, (oldest, _) = self._entries.popitem(last=False)
            self._bytes -= len(oldest) + _OVERHEAD

    async def delete(self, key: bytes) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self._bytes -= len(found[0]) + _OVERHEAD

    async def bump(self, scope: bytes) -> None:
        self._generations.bump(scope)

    async def stats(self, now: float) -> StoreStats:
        return StoreStats(len(self._entries), self._bytes)

    async def close(self) -> None:
        self._entries.clear()
        self._bytes = 0
        self._generations.close()
