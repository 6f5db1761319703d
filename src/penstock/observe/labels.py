"""Names that clients or other servers give, as values of a label: so many are told apart, then `other`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

OTHER: Final = "other"
LONGEST: Final = 128  # characters of a value


class CappedNames:
    """The first `limit` names are themselves, all others are `other`.

    Processes that share a `file` write every name that is new to them at its end, and go by the order that is
    found there: each name is the same in all of them, and all together have no more than one would.
    """

    def __init__(self, limit: int, file: Path | None = None) -> None:
        self._file = file
        self._read = 0  # bytes of the file
        self._met: list[str] = []  # in the order that counts
        self.configure(limit)

    def configure(self, limit: int, kept: Iterable[str] = ()) -> None:
        """So many from now on, among them those that are `kept`, whoever else comes."""
        self._limit = limit
        self._known = {name[:LONGEST] for name in kept}
        self._placed = 0  # of those that were met
        self._meet()

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        name = name[:LONGEST]
        if name not in self._known and len(self._known) < self._limit:
            self._meet(name)
        return name if name in self._known else OTHER

    def _meet(self, *names: str) -> None:
        self._met += names if self._file is None else self._agreed(self._file, names)
        while len(self._known) < self._limit and self._placed < len(self._met):
            self._known.add(self._met[self._placed])
            self._placed += 1

    def _agreed(self, file: Path, names: Iterable[str]) -> list[str]:
        """What stands in the file and was not read yet, these names among it."""
        written = b"".join(msgspec.json.encode(name) + b"\n" for name in names)
        try:
            with file.open("a+b", buffering=0) as stream:  # what is written together is not parted by others
                if written:
                    stream.write(written)
                if stream.seek(0, os.SEEK_END) < self._read:  # somebody has cleaned up: it begins anew
                    self._read = 0
                stream.seek(self._read)
                lines, end, _ = stream.read().rpartition(b"\n")
        except OSError:
            return []  # nobody can agree: they are `other`
        self._read += len(lines + end)
        return [name for line in lines.split(b"\n") if (name := _name(line)) is not None]


def _name(line: bytes) -> str | None:
    """None of a line that a full disk has torn: whoever reads it passes it over."""
    try:
        return msgspec.json.decode(line, type=str)
    except msgspec.MsgspecError:
        return None
