"""Names that clients or other servers give, as values of a label: so many are told apart, then `other`."""

from __future__ import annotations

from collections import deque
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
        self.limit = limit
        self._known: set[str] = set()
        self._file = file
        self._read = 0  # bytes of the file
        self._met: deque[str] = deque()  # in this order, and without a place yet

    def __call__(self, name: str) -> str:
        if name in self._known:
            return name
        name = name[:LONGEST]
        if name not in self._known and len(self._known) < self.limit:
            self._meet(name)
        return name if name in self._known else OTHER

    def keep(self, names: Iterable[str]) -> None:
        """These have a place of their own, whoever else comes."""
        self._meet()
        self._known.update(name[:LONGEST] for name in names)

    def _meet(self, *names: str) -> None:
        self._met.extend(names if self._file is None else self._agreed(self._file, names))
        while self._met and len(self._known) < self.limit:
            self._known.add(self._met.popleft())

    def _agreed(self, file: Path, names: Iterable[str]) -> list[str]:
        """What stands in the file and was not read yet, these names among it."""
        try:
            with file.open("a+b", buffering=0) as stream:  # what is written together is not parted by others
                for name in names:
                    stream.write(msgspec.json.encode(name) + b"\n")
                stream.seek(self._read)
                lines, end, _ = stream.read().rpartition(b"\n")
        except OSError:
            return []  # nobody can agree: they are `other`
        self._read += len(lines + end)
        return [msgspec.json.decode(line, type=str) for line in lines.split(b"\n") if line]
