"""Entries in a file of their own beside the state: kept over restarts, shared by all front processes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from penstock.gateway.cache.store import CacheStoreError, StoreStats
from penstock.gateway.store.database import LOCK_NAME, StoreError, make_private, sentence
from penstock.hub.lock import locked

FILE_NAME: Final = "cache-1.db"  # the number changes with the tables
BUSY_SECONDS: Final = 0.1  # nobody waits longer for another process
USED_SECONDS: Final = 60.0  # how exactly it is known when an entry was last used
_SPARE: Final = 16  # when it is full, a sixteenth is cleared at once

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS entries (
        key BLOB PRIMARY KEY, value BLOB NOT NULL, size INTEGER NOT NULL,
        expires REAL NOT NULL, used REAL NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS by_use ON entries (used)",
    "CREATE INDEX IF NOT EXISTS by_end ON entries (expires)",
    "CREATE TABLE IF NOT EXISTS generations (scope BLOB PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE IF NOT EXISTS totals (
        id INTEGER PRIMARY KEY, entries INTEGER NOT NULL, bytes INTEGER NOT NULL
    )""",
    "INSERT OR IGNORE INTO totals VALUES (1, 0, 0)",
    """CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON entries BEGIN
        UPDATE totals SET entries = entries + 1, bytes = bytes + NEW.size; END""",
    """CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON entries BEGIN
        UPDATE totals SET entries = entries - 1, bytes = bytes - OLD.size; END""",
)

R = TypeVar("R")


class SqliteStore:
    """A thread of its own, so that no disk holds up the event loop."""

    name = "sqlite"

    def __init__(self, folder: Path, max_entries: int, max_bytes: int) -> None:
        """Raises StoreError where no file can be."""
        self._path = folder / FILE_NAME
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        make_private(folder / LOCK_NAME)
        with locked(folder / LOCK_NAME, lambda: None):
            try:
                self._connection = self._opened()
            except sqlite3.DatabaseError:
                # Nothing in it is worth keeping that cannot be read.
                self._remove()
                try:
                    self._connection = self._opened()
                except sqlite3.Error as error:
                    raise StoreError(sentence(self._path, error)) from error
        self._thread = ThreadPoolExecutor(1, "penstock-cache")

    async def read(
        self, key: bytes, scopes: Sequence[bytes], now: float
    ) -> tuple[bytes | None, tuple[int, ...]]:
        def do() -> tuple[bytes | None, tuple[int, ...]]:
            marks = ",".join("?" * len(scopes))
            rows = self._connection.execute(
                f"SELECT scope, number FROM generations WHERE scope IN ({marks})", tuple(scopes)
            )
            known = dict(rows.fetchall())
            generations = tuple(known.get(scope, 0) for scope in scopes)
            found = self._connection.execute(
                "SELECT value, used FROM entries WHERE key = ? AND expires > ?", (key, now)
            ).fetchone()
            if found is None:
                return None, generations
            value, used = found
            if used < now - USED_SECONDS:
                with suppress(
                    sqlite3.OperationalError
                ):  # another process writes: it may wait until the next use
                    self._connection.execute("UPDATE entries SET used = ? WHERE key = ?", (now, key))
            return value, generations

        return await self._do(do)

    async def write(self, key: bytes, value: bytes, ttl: float, now: float) -> None:
        if len(value) > self._max_bytes:
            return

        def do() -> None:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute("DELETE FROM entries WHERE key = ?", (key,))
                self._connection.execute(
                    "INSERT INTO entries VALUES (?, ?, ?, ?, ?)", (key, value, len(value), now + ttl, now)
                )
                self._make_room(now)

        await self._do(do)

    async def delete(self, key: bytes) -> None:
        await self._do(lambda: self._connection.execute("DELETE FROM entries WHERE key = ?", (key,)))

    async def bump(self, scope: bytes) -> None:
        await self._do(
            lambda: self._connection.execute(
                "INSERT INTO generations VALUES (?, 1) ON CONFLICT (scope) DO UPDATE SET number = number + 1",
                (scope,),
            )
        )

    async def stats(self, now: float) -> StoreStats:
        return StoreStats(*await self._do(self._totals))

    async def close(self) -> None:
        with suppress(CacheStoreError):
            await self._do(self._connection.close)
        self._thread.shutdown()

    def _totals(self) -> tuple[int, int]:
        entries, size = self._connection.execute("SELECT entries, bytes FROM totals").fetchone()
        return int(entries), int(size)

    def _make_room(self, now: float) -> None:
        """Those whose time is over go first, then the least recently used."""
        entries, size = self._totals()
        if entries <= self._max_entries and size <= self._max_bytes:
            return
        self._connection.execute("DELETE FROM entries WHERE expires <= ?", (now,))
        entries, size = self._totals()
        most_entries, most_bytes = self._max_entries, self._max_bytes
        if entries > most_entries or size > most_bytes:
            most_entries -= most_entries // _SPARE
            most_bytes -= most_bytes // _SPARE
        while entries > most_entries or size > most_bytes:
            batch = max(1, entries - most_entries if entries > most_entries else entries // (4 * _SPARE))
            self._connection.execute(
                "DELETE FROM entries WHERE key IN (SELECT key FROM entries ORDER BY used, key LIMIT ?)",
                (batch,),
            )
            entries, size = self._totals()

    async def _do(self, act: Callable[[], R]) -> R:
        try:
            # Once begun it is done, also if nobody waits for it any more: no transaction is left open.
            return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, act))
        except sqlite3.Error as error:
            raise CacheStoreError(sentence(self._path, error)) from error
        except RuntimeError as error:  # the thread has ended with the server
            raise CacheStoreError("The cache is closed.") from error

    def _opened(self) -> sqlite3.Connection:
        make_private(self._path)
        connection = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")  # what a power cut takes can be computed again
            for statement in _TABLES:
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def _remove(self) -> None:
        for ending in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
