"""Penstock's SQLite files: opened privately, brought up to date, and every failure put into a sentence."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.errors import PenstockError
from penstock.gateway.store.schema import MIGRATIONS
from penstock.hub import home
from penstock.hub.lock import locked

FILE_NAME: Final = "penstock.db"
LOCK_NAME: Final = "penstock.lock"  # held while files are made and brought up to date
BUSY_SECONDS: Final = 0.25  # a server waits no longer for another process
LEAST_BYTES: Final = 1 << 16  # with less a disk is full: SQLite's index of its log alone takes half of it
_ELSEWHERE: Final = "or name another folder with --state-dir"


class StoreError(PenstockError):
    """Keys, ledger or shared limits cannot be read or written."""


_FULL: Final = f"The disk is full: {{path}} cannot grow; free some space, {_ELSEWHERE}."
# SQLite's primary result code: what it means to whoever runs the server.
_SENTENCES: Final[dict[int, str]] = {
    code: sentence
    for codes, sentence in (
        (
            (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM),
            f"{{path}} cannot be written; make it and its folder writable, {_ELSEWHERE}.",
        ),
        ((sqlite3.SQLITE_FULL,), _FULL),
        (
            (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),
            f"{{path}} is damaged or not a database of Penstock's; put a backup in its place, {_ELSEWHERE}.",
        ),
        (
            (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED),
            "{path} is being written by another process for too long; try again.",
        ),
    )
    for code in codes
}
_OTHERWISE: Final = f"{{path}} cannot be read or written ({{error}}); look at its disk, {_ELSEWHERE}."


def state_folder(state_dir: str | None) -> Path:
    """Where the state lives: the folder that was named, else `state` under Penstock's home."""
    return Path(state_dir).expanduser().absolute() if state_dir else home() / "state"


@contextmanager
def failures_as_sentences(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(sentence(path, error)) from error


def sentence(path: Path, error: sqlite3.Error) -> str:
    # Errors of the sqlite3 module itself (a closed connection) have no code.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # Where it needs room for its index in memory, SQLite does not say that there is none.
    if code == sqlite3.SQLITE_IOERR and _is_full(path.parent):
        code = sqlite3.SQLITE_FULL
    return _SENTENCES.get(code, _OTHERWISE).format(path=path, error=error)


def refused(path: Path, error: OSError) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(_FULL.format(path=path))
    return StoreError(
        f"{path} cannot be written ({error.strerror}); make it and its folder writable, {_ELSEWHERE}."
    )


def _is_full(folder: Path) -> bool:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < LEAST_BYTES


def make_private(path: Path) -> None:
    """The file, readable by its owner alone; SQLite gives the files beside it the same permissions.

    One that is there is not opened: closing it again would release, as POSIX has it, all locks that this
    process holds on it, and another one would take the log away that is still being written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not path.parent.is_dir():
            raise StoreError(f"{path.parent} is not a folder; {_ELSEWHERE[3:]}.") from None
        # Otherwise another process has made it in between.
    except OSError as error:
        raise refused(path, error) from None


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file is there. The number of one that is open is not given to another."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Database:
    """One connection to the file of keys and ledger. Threads take turns with it; it does not cross a fork."""

    def __init__(self, folder: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = folder / FILE_NAME
        self._turn = threading.RLock()
        make_private(folder / LOCK_NAME)
        make_private(self.path)
        # Before it is opened: one that is put there in between is then seen as another.
        self._opened = _identity(self.path)
        with failures_as_sentences(self.path):
            self.connection = sqlite3.connect(
                self.path, timeout=busy_seconds, isolation_level=None, check_same_thread=False
            )
            try:
                # Two processes that open a new file at once would trip over each other's first steps.
                with locked(folder / LOCK_NAME, lambda: None):
                    self._prepare()
            except BaseException:
                self.connection.close()
                raise

    def _prepare(self) -> None:
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = NORMAL")
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{self.path} was written by a newer Penstock (schema {version}, this one knows "
                f"{len(MIGRATIONS)}); run that one, {_ELSEWHERE}."
            )
        for number, statements in enumerate(MIGRATIONS[version:], start=version + 1):
            with self.write() as connection:
                for statement in statements:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")

    def check_in_place(self) -> None:
        """Raise StoreError when the file was deleted or replaced: what is open is then nobody else's.

        It can still be read, but what is written to it is lost with this process.
        """
        if not self.in_place:
            raise StoreError(
                f"The state in {self.path.parent} is gone; keys and budgets are those last known, and usage "
                "is kept in memory until the server ends; restart it."
            )

    @property
    def in_place(self) -> bool:
        return self._opened == _identity(self.path)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it or nothing."""
        self.check_in_place()
        with self._turn, failures_as_sentences(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                # A full disk has rolled back by itself.
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        with self._turn, failures_as_sentences(self.path):
            yield self.connection

    def close(self) -> None:
        self.connection.close()
