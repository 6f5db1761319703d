"""Entries in a Redis server, shared by all gateways that are given its address.

A server that does not answer within a tenth of a second does not answer: whoever asks goes on without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.errors import ConfigError
from penstock.gateway.cache.store import CacheStoreError, StoreStats

if TYPE_CHECKING:
    from redis.asyncio import Redis

TIMEOUT: Final = 0.1  # seconds, for anything
SCHEMES: Final = ("redis://", "rediss://", "unix://")
_CONNECTIONS: Final = 64
_PREFIX: Final = b"penstock:cache:1:"

R = TypeVar("R")


class RedisStore:
    """Its size is bounded by the server's `maxmemory`, the time of entries by its own expiry."""

    name = "redis"

    def __init__(self, url: str, *, timeout: float = TIMEOUT) -> None:
        """Raises ConfigError for what is no address of a Redis server. Connects when it is first used."""
        self._timeout = timeout
        self._client = _client(url, timeout)

    async def read(
        self, key: bytes, scopes: Sequence[bytes], now: float
    ) -> tuple[bytes | None, tuple[int, ...]]:
        names = [_PREFIX + b"e:" + key, *(_PREFIX + b"g:" + scope for scope in scopes)]
        found: list[Any] = await self._do(self._client.mget(names))
        value, *numbers = found
        try:
            return value, tuple(int(number or 0) for number in numbers)
        except ValueError:
            raise CacheStoreError("The Redis server has a generation that is no number.") from None

    async def write(self, key: bytes, value: bytes, ttl: float, now: float) -> None:
        await self._do(self._client.set(_PREFIX + b"e:" + key, value, px=max(1, round(ttl * 1000))))

    async def delete(self, key: bytes) -> None:
        await self._do(self._client.delete(_PREFIX + b"e:" + key))

    async def bump(self, scope: bytes) -> None:
        await self._do(self._client.incr(_PREFIX + b"g:" + scope))

    async def stats(self, now: float) -> StoreStats:
        return StoreStats(None, None)  # others may keep things there too

    async def close(self) -> None:
        try:
            await self._do(self._client.aclose())
        except CacheStoreError:
            return

    async def _do(self, command: Awaitable[R]) -> R:
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(self._timeout):
                return await command
        except (RedisError, OSError, TimeoutError) as error:
            # Its text may hold the address.
            raise CacheStoreError(f"The Redis server failed ({type(error).__name__}).") from error


def _client(url: str, timeout: float) -> Redis:
    try:
        from redis.asyncio import BlockingConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise ConfigError(
            "cache.store names a Redis server, and the package for it is missing; run: "
            "pip install 'penstock[redis]'."
        ) from None
    if not url.startswith(SCHEMES):
        raise ConfigError(f"cache.store must begin with one of {', '.join(SCHEMES)}.")
    options: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),  # whoever asks has no time for it
        "max_connections": _CONNECTIONS,
        "timeout": timeout,  # for one of them to be free
    }
    try:
        return Redis.from_pool(BlockingConnectionPool.from_url(url, **options))
    except ValueError as error:
        raise ConfigError(f"cache.store is no address of a Redis server: {error}.") from None
