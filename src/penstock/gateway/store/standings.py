"""One row for each tenant, changed by several workers at once: what they share of limits and budgets.

Nothing here outlives a boot of the machine: the rows hold times of its monotonic clock, and are not worth a
write to the disk. So the file has the boot in its name, and a damaged one is impossible short of a power cut.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from penstock.gateway.store.database import (
    LOCK_NAME,
    StoreError,
    failures_as_sentences,
    make_private,
    refused,
    sentence,
)
from penstock.gateway.store.workers import Worker
from penstock.hub.lock import locked

FILE_NAME: Final = "standings-1.db"  # the number changes with what a row looks like
BUSY_SECONDS: Final = 0.1  # the event loop stands still for this long at most
_SHORTEST_PAUSE: Final = 20e-6  # seconds; another worker's change takes about as long
_LONGEST_PAUSE: Final = 1e-3

R = TypeVar("R")
# From what is stored (None: nothing yet) to what is to be stored (None: leave it) and the caller's result.
Change = Callable[[bytes | None], tuple[bytes | None, R]]


class StandingFile:
    """For one thread; `worker` is this process among those that share the file."""

    def __init__(self, folder: Path) -> None:
        run = folder / "run"
        self.path = run / boot() / FILE_NAME
        make_private(folder / LOCK_NAME)
        make_private(self.path)
        with failures_as_sentences(self.path), locked(folder / LOCK_NAME, lambda: None):
            _clear_other_boots(run)
            self._connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise
        self._execute = self._connection.execute
        try:
            self.worker = Worker(self.path.parent)
        except OSError as error:
            self._connection.close()
            raise refused(self.path, error) from None
        self.worker.bury()

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = OFF")
        execute(
            "CREATE TABLE IF NOT EXISTS standings (tenant TEXT PRIMARY KEY, state BLOB NOT NULL) "
            "WITHOUT ROWID"
        )
        # From here on we wait ourselves: SQLite would sleep for milliseconds at a time.
        execute("PRAGMA busy_timeout = 0")

    def change(self, tenant: str, change: Change[R]) -> R:
        """Read a row, decide, write it, while nobody else can. `change` must not fail half way."""
        try:
            self._begin()
            try:
                row = self._execute("SELECT state FROM standings WHERE tenant = ?", (tenant,)).fetchone()
                state, result = change(row[0] if row else None)
                if state is None:
                    self._execute("ROLLBACK")
                    return result
                self._execute(
                    "INSERT INTO standings VALUES (?, ?) ON CONFLICT (tenant) DO UPDATE "
                    "SET state = excluded.state",
                    (tenant, state),
                )
                self._execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreError(sentence(self.path, error)) from error
        return result

    def _begin(self) -> None:
        pause = 0.0
        deadline = 0.0
        while True:
            try:
                self._execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                deadline = deadline or time.monotonic() + BUSY_SECONDS
                if time.monotonic() > deadline:
                    raise
                pause = min(pause * 2, _LONGEST_PAUSE) or _SHORTEST_PAUSE
                time.sleep(pause)

    def close(self) -> None:
        self._connection.close()
        self.worker.close()


def boot() -> str:
    """A name for the time since the machine was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "boot"


def _clear_other_boots(run: Path) -> None:
    for folder in run.iterdir():
        if folder.is_dir() and folder.name != boot():
            shutil.rmtree(folder, ignore_errors=True)
