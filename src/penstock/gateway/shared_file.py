"""What the processes of one server know together: a small file that each of them reads and writes."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
Result = TypeVar("Result")


class SharedFile(Generic[T]):
    """In a folder of this user's alone, which goes with the server."""

    def __init__(self, path: Path, kind: type[T], empty: Callable[[], T]) -> None:
        self._path = path
        self._lock = path.with_suffix(".lock")
        self._decoder = msgspec.json.Decoder(kind)
        self._empty = empty

    def read(self) -> T:
        """Raises OSError, or MsgspecError for a file that nobody here has written."""
        try:
            return self._decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return self._empty()

    def version(self) -> tuple[int, int]:
        """Others whenever the content is another."""
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_ino

    def change(self, change: Callable[[T], tuple[T, Result]]) -> Result:
        """Replace the content by what `change` makes of it; one process at a time."""
        with self._locked():
            content, result = change(self.read())
            # Readers see the file before or after, never half of it.
            passing = self._path.with_suffix(f".{os.getpid()}")
            passing.write_bytes(msgspec.json.encode(content))
            passing.rename(self._path)
            return result

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
