"""How often each scope was invalidated, for caches in memory: in one process, or in all of one folder."""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path
from typing import Final, Protocol

from penstock.gateway.cache.store import CacheStoreError
from penstock.gateway.store.database import make_private, refused

FILE_NAME: Final = "cache-generations"
SLOTS: Final = 4096  # scopes that fall on the same one are invalidated together
_WIDTH: Final = 8  # bytes of a number


class Generations(Protocol):
    def of(self, scope: bytes) -> int:
        """Raises CacheStoreError."""

    def bump(self, scope: bytes) -> None:
        """Begin the scope's next generation. Raises CacheStoreError."""

    def close(self) -> None: ...


class OwnGenerations:
    """This process's alone."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def of(self, scope: bytes) -> int:
        return self._numbers.get(scope, 0)

    def bump(self, scope: bytes) -> None:
        self._numbers[scope] = self.of(scope) + 1

    def close(self) -> None:
        """There is nothing to let go."""


class SharedGenerations:
    """A table in a file that all processes have in their memory: reading it asks nobody, and what one of
    them changes holds for all at once."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreError where no file can be."""
        path = folder / FILE_NAME
        make_private(path)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.ftruncate(self._file, SLOTS * _WIDTH)  # what is there already stays
                self._memory = mmap.mmap(self._file, SLOTS * _WIDTH)
            except BaseException:
                os.close(self._file)
                raise
        except OSError as error:
            raise refused(path, error) from None
        self._numbers = memoryview(self._memory).cast("Q")

    def of(self, scope: bytes) -> int:
        try:
            return self._numbers[_slot(scope)]
        except ValueError as error:  # let go
            raise CacheStoreError("The cache is closed.") from error

    def bump(self, scope: bytes) -> None:
        slot = _slot(scope)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                self._numbers[slot] += 1
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        except (OSError, ValueError) as error:
            raise CacheStoreError(f"The other processes cannot be told ({error}).") from error

    def close(self) -> None:
        self._numbers.release()
        self._memory.close()
        os.close(self._file)


def _slot(scope: bytes) -> int:
    """`scope` is a digest: any of its bytes will do."""
    return int.from_bytes(scope[:4], "big") % SLOTS
