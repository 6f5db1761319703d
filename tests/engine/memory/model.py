"""What KV memory promises, in the simplest form: cells, prefixes as tuples, a stamp for the last use.

Shares nothing with the real thing: no block numbers, digests, trees or ordered dictionaries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count


@dataclass(eq=False)
class Cell:
    """A block's worth of memory that somebody holds or that is kept for its content."""

    holders: int = 1
    key: tuple[str, tuple[int, ...]] | None = None  # salt and whole prefix, once published
    left: int = 0  # when the last holder left


@dataclass(eq=False)
class ModelTable:
    salt: str
    cells: list[Cell] = field(default_factory=list)
    published: int = 0


class Model:
    def __init__(self, total: int, block_size: int, prefix_caching: bool) -> None:
        self.free = total
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.known: dict[tuple[str, tuple[int, ...]], Cell] = {}
        self._stamps = count(1)

    @property
    def idle(self) -> list[Cell]:
        return [cell for cell in self.known.values() if not cell.holders]

    @property
    def available(self) -> int:
        return self.free + len(self.idle)

    def matching(self, salt: str, tokens: list[int]) -> list[Cell]:
        """Cells of the longest known prefix that leaves at least one token to compute."""
        found: list[Cell] = []
        while self.prefix_caching and (end := (len(found) + 1) * self.block_size) < len(tokens):
            cell = self.known.get((salt, tuple(tokens[:end])))
            if cell is None:
                break
            found.append(cell)
        return found

    def adopt(self, table: ModelTable, tokens: list[int]) -> None:
        table.cells = self.matching(table.salt, tokens)
        table.published = len(table.cells)
        for cell in table.cells:
            cell.holders += 1

    def missing(self, table: ModelTable, start: int, end: int) -> int:
        return max(0, -(-end // self.block_size) - len(table.cells)) + self.must_copy(table, start)

    def must_copy(self, table: ModelTable, start: int) -> bool:
        index = start // self.block_size
        if index >= len(table.cells):
            return False
        cell = table.cells[index]
        return cell.holders > 1 or cell.key is not None

    def grow(self, table: ModelTable, start: int, end: int) -> None:
        if self.must_copy(table, start):
            index = start // self.block_size
            old, table.cells[index] = table.cells[index], self._take()
            table.published = min(table.published, index)
            self._drop(old)
        while len(table.cells) * self.block_size < end:
            table.cells.append(self._take())

    def fork(self, table: ModelTable, tokens: int) -> ModelTable:
        child = ModelTable(table.salt, table.cells[: -(-tokens // self.block_size)])
        child.published = min(table.published, tokens // self.block_size)
        for cell in child.cells:
            cell.holders += 1
        return child

    def commit(self, table: ModelTable, tokens: list[int], computed: int) -> None:
        if not self.prefix_caching:
            return
        for index in range(table.published, computed // self.block_size):
            key = (table.salt, tuple(tokens[: (index + 1) * self.block_size]))
            cell = table.cells[index]
            first = self.known.setdefault(key, cell)
            if first is cell:
                cell.key = key
            else:
                first.holders += 1
                table.cells[index] = first
                self._drop(cell)
            table.published = index + 1

    def release(self, table: ModelTable, *, keep: bool = True) -> None:
        for cell in reversed(table.cells):
            if not keep and cell.holders == 1 and cell.key is not None and not self._longer(cell.key):
                del self.known[cell.key]
                cell.key = None
            self._drop(cell)
        table.cells = []
        table.published = 0

    def _take(self) -> Cell:
        if self.free:
            self.free -= 1
        else:
            # The one left longest ago; within one release the end of the prefix left first.
            victim = min(self.idle, key=lambda cell: cell.left)
            assert victim.key is not None
            del self.known[victim.key]
            assert not self._longer(victim.key), "an eviction orphaned a longer prefix"
        return Cell()

    def _longer(self, key: tuple[str, tuple[int, ...]]) -> bool:
        """Whether a prefix is known that goes on from this one."""
        salt, prefix = key
        return any(s == salt and len(k) > len(prefix) and k[: len(prefix)] == prefix for s, k in self.known)

    def _drop(self, cell: Cell) -> None:
        cell.holders -= 1
        assert cell.holders >= 0
        if not cell.holders:
            cell.left = next(self._stamps)
            if cell.key is None:
                self.free += 1
