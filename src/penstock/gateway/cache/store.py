"""Where entries are kept: what a store must do, and the shelf that makes any of them safe to use.

A store keeps bytes, and generations: numbers that say how often a scope (a tenant, a model, all) has been
invalidated. An entry carries those of its time, and is worth nothing under any others.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from penstock.errors import PenstockError
from penstock.gateway.cache.circuit import Circuit
from penstock.gateway.cache.entry import MAX_ENTRY_BYTES, Entry
from penstock.gateway.cache.key import Asker, scope_name

logger = logging.getLogger("penstock.gateway")

_MAGIC: Final = b"penstock\x01"  # the number changes with what an entry looks like
_MAC_BYTES: Final = 32


class CacheStoreError(PenstockError):
    """A store cannot be read or written. It costs a hit, and nothing else."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    entries: int | None  # None: the store does not tell
    bytes: int | None


class Store(Protocol):
    """Bytes by key, bounded, each for a time. Whatever fails is a CacheStoreError. `now`: Unix time."""

    name: str

    async def read(
        self, key: bytes, scopes: Sequence[bytes], now: float
    ) -> tuple[bytes | None, tuple[int, ...]]:
        """What is kept under `key`, and the generations of `scopes`."""

    async def write(self, key: bytes, value: bytes, ttl: float, now: float) -> None: ...

    async def delete(self, key: bytes) -> None: ...

    async def bump(self, scope: bytes) -> None:
        """Begin the scope's next generation."""

    async def stats(self, now: float) -> StoreStats: ...

    async def close(self) -> None: ...


class _Sealed(msgspec.Struct, frozen=True, array_like=True):
    generations: tuple[int, ...]
    expires: float  # Unix time
    entry: Entry


_decode: Final = msgspec.msgpack.Decoder(_Sealed).decode
_encode: Final = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Found:
    entry: Entry | None
    generations: tuple[int, ...] | None  # None: the store did not answer, and nothing is kept either


class Shelf:
    """A store of which only what was put there, under that key and whole, comes back."""

    def __init__(
        self, store: Store, *, wall: Callable[[], float], clock: Callable[[], float], secret: bytes = b""
    ) -> None:
        """`wall`: Unix time; `clock`: monotonic seconds. `secret`: without it nobody can forge an entry."""
        self._store = store
        self._wall = wall
        self._clock = clock
        self._secret = hashlib.sha256(secret).digest()
        self._circuit = Circuit()
        self.damaged = 0  # entries that were not what was put there
        self.errors = 0

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def now(self) -> float:
        return self._wall()

    async def get(self, key: bytes, asker: Asker) -> Found:
        key = self._named(key)
        if not self._circuit.closed(self._clock()):
            return Found(None, None)
        now = self._wall()
        try:
            value, generations = await self._store.read(key, _scopes(asker), now)
        except CacheStoreError as error:
            self._failed(error)
            return Found(None, None)
        self._circuit.succeeded()
        if value is None:
            return Found(None, generations)
        sealed = self._opened(key, value)
        if sealed is None:
            self.damaged += 1
            logger.warning("An entry of the cache in %s is damaged or not ours; it was removed.", self.name)
            await self._delete(key)
            return Found(None, generations)
        fresh = sealed.generations == generations and now < sealed.expires
        return Found(sealed.entry if fresh else None, generations)

    async def put(self, key: bytes, entry: Entry, ttl: float, generations: tuple[int, ...]) -> bool:
        """`generations`: those that held when the answer was asked for. Whether it was written."""
        if entry.size > MAX_ENTRY_BYTES or not self._circuit.closed(self._clock()):
            return False
        key, now = self._named(key), self._wall()
        value = _encode(_Sealed(generations, now + ttl, entry))
        try:
            await self._store.write(key, self._seal(key, value) + value, ttl, now)
        except CacheStoreError as error:
            self._failed(error)
            return False
        self._circuit.succeeded()
        return True

    async def invalidate(self, tenant: str | None = None, model: str | None = None) -> None:
        """Nothing that was kept so far is given again: of a tenant, of a model, of both together, or at all.
        Raises CacheStoreError when that could not be done."""
        await self._store.bump(scope_name(tenant, model))

    async def stats(self) -> StoreStats:
        try:
            return await self._store.stats(self._wall())
        except CacheStoreError as error:
            self._failed(error)
            return StoreStats(None, None)

    async def close(self) -> None:
        await self._store.close()

    async def _delete(self, key: bytes) -> None:
        try:
            await self._store.delete(key)
        except CacheStoreError as error:
            self._failed(error)

    def _named(self, key: bytes) -> bytes:
        """Under which it is kept. Whose secret differs looks elsewhere, and takes nobody's entries for
        damaged ones; who reads the store cannot tell from a name what was asked."""
        return hmac.digest(self._secret, b"key\0" + key, "sha256")

    def _failed(self, error: CacheStoreError) -> None:
        self.errors += 1
        if self._circuit.failed(self._clock()):
            logger.warning("%s Answers are computed without the cache until it is back.", error)

    def _seal(self, key: bytes, value: bytes) -> bytes:
        """Binds a value to its key: another's, moved here, is not opened."""
        return _MAGIC + hmac.digest(
            self._secret, _MAGIC + len(key).to_bytes(4, "big") + key + value, "sha256"
        )

    def _opened(self, key: bytes, data: bytes) -> _Sealed | None:
        border = len(_MAGIC) + _MAC_BYTES
        seal, value = data[:border], data[border:]
        if not hmac.compare_digest(seal, self._seal(key, value)):
            return None
        try:
            return _decode(value)
        except msgspec.DecodeError:
            return None


def _scopes(asker: Asker) -> tuple[bytes, ...]:
    names = (None, asker.tier, asker.model)
    return tuple(scope_name(tenant, name) for tenant in (None, asker.tenant) for name in names)
