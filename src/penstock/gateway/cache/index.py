"""Vectors of questions, found again by nearness: an exact search within one partition, bounded in all.

Questions of different partitions are in different arrays and never meet. Not safe for several threads.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

MAX_ROWS: Final = (
    50_000  # of all partitions together; 77 MB of vectors, and 10 ms for one search through them
)
_FIRST_ROWS: Final = 8


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A question that is near to another, and the key of its answer."""

    text: str
    key: bytes
    similarity: float  # cosine


class _Partition:
    """Rows without gaps: the last one takes the place of one that is removed."""

    def __init__(self, width: int) -> None:
        self.vectors = np.empty((_FIRST_ROWS, width), np.float32)
        self.texts: list[str] = []
        self.keys: list[bytes] = []
        self.ends: list[float] = []
        self.rows: dict[str, int] = {}

    def add(self, text: str, vector: NDArray[np.float32], key: bytes, end: float) -> None:
        row = self.rows.get(text)
        if row is None:
            row = len(self.texts)
            if row == len(self.vectors):
                self.vectors = np.concatenate([self.vectors, np.empty_like(self.vectors)])
            self.vectors[row] = vector
            self.rows[text] = row
            self.texts.append(text)
            self.keys.append(key)
            self.ends.append(end)
        self.keys[row], self.ends[row] = key, end

    def remove(self, text: str) -> None:
        row, last = self.rows.pop(text), len(self.texts) - 1
        if row != last:
            self.vectors[row] = self.vectors[last]
            self.texts[row], self.keys[row], self.ends[row] = (
                self.texts[last],
                self.keys[last],
                self.ends[last],
            )
            self.rows[self.texts[row]] = row
        for column in (self.texts, self.keys, self.ends):
            column.pop()


class VectorIndex:
    """At most `max_rows` questions; the one that was longest of no use makes room for a new one."""

    def __init__(self, width: int, max_rows: int = MAX_ROWS) -> None:
        self._width = width
        self._max_rows = max_rows
        self._partitions: dict[bytes, _Partition] = {}
        self._used: OrderedDict[tuple[bytes, str], None] = OrderedDict()  # the latest is last

    def __len__(self) -> int:
        return len(self._used)

    def add(self, partition: bytes, text: str, vector: NDArray[np.float32], key: bytes, end: float) -> None:
        """Keep `text`, of a vector of length 1, until the time `end`."""
        rows = self._partitions.setdefault(partition, _Partition(self._width))
        rows.add(text, vector, key, end)
        self.use(partition, text)
        if len(self._used) > self._max_rows:
            self.remove(*next(iter(self._used)))

    def use(self, partition: bytes, text: str) -> None:
        """It was of use just now."""
        self._used[partition, text] = None
        self._used.move_to_end((partition, text))

    def remove(self, partition: bytes, text: str) -> None:
        """Forget a question; one that is not there is none to forget."""
        if (partition, text) not in self._used:
            return
        del self._used[partition, text]
        rows = self._partitions[partition]
        rows.remove(text)
        if not rows.texts:
            del self._partitions[partition]

    def remove_key(self, partition: bytes, key: bytes) -> None:
        """Forget the questions whose answer had this key."""
        rows = self._partitions.get(partition)
        if rows is not None:
            for text in [text for text, kept in zip(rows.texts, rows.keys, strict=True) if kept == key]:
                self.remove(partition, text)

    def nearest(
        self, partition: bytes, vector: NDArray[np.float32], least: float, now: float, most: int
    ) -> list[Neighbour]:
        """At most `most` questions of this partition with a similarity of at least `least`, nearest first."""
        rows = self._partitions.get(partition)
        if rows is None:
            return []
        likeness = rows.vectors[: len(rows.texts)] @ vector
        found = np.flatnonzero(likeness >= least)
        found = found[np.argsort(-likeness[found], kind="stable")][: 2 * most]
        ended = [rows.texts[row] for row in found if rows.ends[row] <= now]
        near = [
            Neighbour(rows.texts[row], rows.keys[row], float(likeness[row]))
            for row in found
            if rows.ends[row] > now
        ]
        for text in ended:
            self.remove(partition, text)
        return near[:most]
