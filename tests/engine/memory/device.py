"""A pretended device: it does with blocks what `run/runner.py` does, and knows what each place holds.

The key and value of a position depend on every token up to it. So what is stored for a position is
that very prefix, and reading a table back shows at once whether it leads to anybody else's content.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.memory.manager import BlockTable


class Device:
    """Blocks by number, and by slot the block table as the device was last told."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self._cache: list[list[tuple[int, ...] | None]] = [[None] * block_size for _ in range(num_blocks)]
        self._tables: dict[int, list[int]] = {}

    def copy(self, copies: Sequence[tuple[int, int]]) -> None:
        for source, target in copies:
            assert source != target, "a block was copied onto itself"
            self._cache[target] = list(self._cache[source])

    def update(self, slot: int, table: BlockTable) -> None:
        """Take over the part of the table that is said to have changed; what is kept must still be right."""
        known = self._tables.setdefault(slot, [])
        start = table.changed_from
        del known[len(table.blocks) :]
        known += [-1] * (len(table.blocks) - len(known))
        known[start:] = table.blocks[start:]
        table.changed_from = len(table.blocks)
        assert known == table.blocks, "the device was not told of a change in a block table"

    def write(self, slot: int, tokens: Sequence[int], start: int, end: int) -> None:
        for position in range(start, end):
            block = self._tables[slot][position // self.block_size]
            self._cache[block][position % self.block_size] = tuple(tokens[: position + 1])

    def read(self, table: BlockTable, tokens: Sequence[int], computed: int) -> None:
        """Assert that every computed position of a table holds its own prefix."""
        for position in range(computed):
            block = table.blocks[position // self.block_size]
            found = self._cache[block][position % self.block_size]
            expected = tuple(tokens[: position + 1])
            assert found == expected, f"position {position}, block {block}: {found} instead of {expected}"

    def forget(self, slot: int) -> None:
        """The slot goes to another sequence, whose table starts from nothing."""
        self._tables.pop(slot, None)
