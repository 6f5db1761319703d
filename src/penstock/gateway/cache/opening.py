"""From the configuration to a cache that works."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.aio.encoder import load_encoder
from penstock.config import CacheConfig
from penstock.errors import ConfigError
from penstock.gateway.cache.cache import ResponseCache, Semantic
from penstock.gateway.cache.generations import SharedGenerations
from penstock.gateway.cache.index import MAX_ROWS
from penstock.gateway.cache.memory import MemoryStore
from penstock.gateway.cache.redis import SCHEMES, RedisStore
from penstock.gateway.cache.secret import kept_secret
from penstock.gateway.cache.semantic import SemanticFinder
from penstock.gateway.cache.sqlite import SqliteStore
from penstock.gateway.cache.store import Shelf, Store


def open_cache(
    config: CacheConfig,
    folder: Path | None,
    *,
    share: int = 1,
    semantic: Semantic | None = None,
) -> ResponseCache | None:
    """None: it is off. `folder`: of the state; `share`: this is one of so many processes. Raises ConfigError
    or StoreError."""
    if not config.enabled:
        return None
    store, secret = open_store(config, folder, share), open_secret(config, folder)
    shelf = Shelf(store, wall=time.time, clock=time.monotonic, secret=secret)
    return ResponseCache(shelf, ttl=config.ttl, semantic=semantic)


def open_semantic(config: CacheConfig) -> SemanticFinder:
    """Finds questions that say the same. Raises ConfigError where the text encoder cannot be had."""
    encoder = load_encoder()
    return SemanticFinder(
        encoder.embed,
        encoder.width,
        similarity=config.similarity,
        ttl=config.ttl,
        clock=time.monotonic,
        max_rows=min(config.max_entries, MAX_ROWS),
    )


def open_store(config: CacheConfig, folder: Path | None, share: int = 1) -> Store:
    opener = STORES.get(config.store.partition("://")[0])
    if opener is None:
        raise ConfigError(
            f"cache.store must be memory, sqlite or an address that begins with {' or '.join(SCHEMES)}, "
            f"got {config.store!r}."
        )
    return opener(config, folder, share)


def _memory(config: CacheConfig, folder: Path | None, share: int) -> Store:
    generations = SharedGenerations(folder) if share > 1 and folder is not None else None
    return MemoryStore(max(1, config.max_entries // share), max(1, config.max_bytes // share), generations)


def _sqlite(config: CacheConfig, folder: Path | None, share: int) -> Store:
    if folder is None:
        raise ConfigError("cache.store is sqlite, and there is no state folder; name one with --state-dir.")
    return SqliteStore(folder, config.max_entries, config.max_bytes)


def _redis(config: CacheConfig, folder: Path | None, share: int) -> Store:
    return RedisStore(config.store)


# By `cache.store`, or what stands before its `://`.
STORES: Final[dict[str, Callable[[CacheConfig, Path | None, int], Store]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    **dict.fromkeys((scheme.removesuffix("://") for scheme in SCHEMES), _redis),
}


def open_secret(config: CacheConfig, folder: Path | None) -> bytes:
    """What entries are sealed with. In memory nobody else can put one, and nothing is to be kept for it."""
    if config.secret is not None:
        return config.secret.encode()
    if config.store == "memory" or folder is None:
        return b""
    return kept_secret(folder)
