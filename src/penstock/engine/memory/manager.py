"""KV memory as the scheduler sees it: tables that grow, fork, share prefixes and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from penstock.engine.memory.digest import DigestChain, root_digest
from penstock.engine.memory.pool import BlockPool
from penstock.engine.memory.prefix import PrefixTree

LAST_RANK = (inf, 0)  # behind everybody


@dataclass(slots=True)
class BlockTable:
    """The blocks of one sequence, in order, and how many of them the prefix tree knows.

    `changed_from` is the first entry the device has not been told about; the device side
    resets it to `len(blocks)` when it copies the table.
    """

    chain: DigestChain
    blocks: list[int] = field(default_factory=list)
    committed: int = 0
    changed_from: int = 0
    announced: list[bytes] = field(default_factory=list)  # digests of blocks it is to compute
    rank: tuple[float, int] = LAST_RANK  # of the sequence that announced them


@dataclass(frozen=True, slots=True)
class KnownPrefix:
    """How much of a token list need not be computed."""

    blocks: int  # known from the start on
    idle: int  # of those, held by nobody now
    coming: tuple[float, int] | None  # rank of the sequence that is about to compute the next one


class KVMemory:
    """Every block is free, idle in the prefix tree, or held by at least one table."""

    def __init__(self, num_blocks: int, block_size: int, *, prefix_caching: bool = True) -> None:
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self._pool = BlockPool(num_blocks)
        self._tree = PrefixTree()
        # Prefix blocks that a running sequence is about to compute, and its rank.
        self._coming: dict[bytes, tuple[float, int]] = {}

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    @property
    def num_cached(self) -> int:
        return self._tree.num_idle

    @property
    def available(self) -> int:
        """Blocks that can be had now: free ones and idle ones."""
        return self._pool.num_free + self._tree.num_idle

    def new_table(self, salt: str) -> BlockTable:
        return BlockTable(DigestChain(root_digest(salt), self.block_size))

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def peek(self, table: BlockTable, tokens: list[int], *, reuse: bool = True) -> KnownPrefix:
        """What is known of `tokens`. The last one is always left to compute: its logits are needed."""
        if not self.prefix_caching or not reuse:
            return KnownPrefix(0, 0, None)
        limit = (len(tokens) - 1) // self.block_size
        digests = table.chain.digests
        idle = 0
        for found in range(limit):
            # No more digests than need be: whoever waits for the first of many blocks is asked often.
            if found == len(digests):
                table.chain.extend(tokens, found + 1)
            node = self._tree.find(digests[found])
            if node is None:
                return KnownPrefix(found, idle, self._coming.get(digests[found]))
            idle += not self._pool.holders(node.block)
        return KnownPrefix(limit, idle, None)

    def adopt_prefix(
        self, table: BlockTable, tokens: list[int], rank: tuple[float, int], *, reuse: bool = True
    ) -> int:
        """Fill an empty table with the known prefix of `tokens` (none of it without `reuse`), announce the
        blocks that the sequence will compute, and return how many tokens need no computing."""
        if not self.prefix_caching:
            return 0
        limit = (len(tokens) - 1) // self.block_size
        digests = table.chain.extend(tokens)
        known = self._tree.match(digests, limit)
        found = known if reuse else []
        for node in found:
            if self._pool.share(node.block) == 1:
                self._tree.unpark(node.block)
            table.blocks.append(node.block)
        table.committed = len(found)
        table.changed_from = 0
        # Others wait for whoever is first in rank of those who compute the same.
        table.rank = rank
        table.announced = [d for d in digests[len(known) :] if rank < self._coming.get(d, LAST_RANK)]
        self._coming.update(dict.fromkeys(table.announced, rank))
        return len(found) * self.block_size

    def is_writable(self, table: BlockTable, position: int) -> bool:
        """Whether the table has a block of its own for this position: `grow` would change nothing."""
        index = position // self.block_size
        blocks = table.blocks
        return index < len(blocks) and not self._is_held_by_others(blocks[index])

    def can_grow(self, table: BlockTable, start: int, tokens: int) -> bool:
        """Whether `grow` with the same arguments would find enough blocks."""
        missing = self.blocks_for(tokens) - len(table.blocks)
        return missing + self._is_shared(table, start) <= self.available

    def grow(self, table: BlockTable, start: int, tokens: int) -> tuple[int, int] | None:
        """Make the positions from `start` to `tokens` writable; the caller asked `can_grow`.

        When others read the block that `start` falls in, the table gets its own: the result is the
        copy (from, to) that the device must make before this step writes anything.
        """
        copy = None
        if self._is_shared(table, start):
            index = start // self.block_size
            copy = (table.blocks[index], self._take())
            table.blocks[index] = copy[1]
            table.changed_from = min(table.changed_from, index)
            table.committed = min(table.committed, index)
            self._drop(copy[0])
        for _ in range(self.blocks_for(tokens) - len(table.blocks)):
            table.blocks.append(self._take())
        return copy

    def _is_shared(self, table: BlockTable, start: int) -> bool:
        index = start // self.block_size
        if index >= len(table.blocks):
            return False
        return self._is_held_by_others(table.blocks[index])

    def _is_held_by_others(self, block: int) -> bool:
        """By another table or the prefix tree; the asker holds it too."""
        return self._pool.holders(block) > 1 or self._tree.holds(block)

    def fork(self, table: BlockTable, tokens: int) -> BlockTable:
        """A second table over the first `tokens` tokens of `table`; blocks are shared until written."""
        full = tokens // self.block_size
        child = BlockTable(table.chain.fork(full), table.blocks[: self.blocks_for(tokens)])
        child.committed = min(table.committed, full)
        for block in child.blocks:
            self._pool.share(block)
        return child

    def commit(self, table: BlockTable, tokens: list[int], computed: int) -> None:
        """The first `computed` tokens now have their keys and values: publish the full blocks."""
        if not self.prefix_caching:
            return
        full = computed // self.block_size
        if table.committed >= full:
            return
        digests = table.chain.extend(tokens)
        for index in range(table.committed, full):
            digest, block = digests[index], table.blocks[index]
            known = self._tree.find(digest)
            if known is None:
                self._tree.insert(digest, block, digests[index - 1] if index else None)
            elif known.block != block:
                # Somebody else computed the same block first: keep one copy.
                if self._pool.share(known.block) == 1:
                    self._tree.unpark(known.block)
                table.blocks[index] = known.block
                table.changed_from = min(table.changed_from, index)
                self._drop(block)
            self._coming.pop(digest, None)
        table.committed = full

    def release(self, table: BlockTable, *, keep: bool = True) -> None:
        """Give up every block; the table is empty afterwards.

        Full blocks stay findable, unless `keep` is false and nobody else holds them.
        """
        for digest in table.announced:
            if self._coming.get(digest) == table.rank:
                del self._coming[digest]
        table.announced = []
        for block in reversed(table.blocks):
            self._drop(block, keep=keep)
        table.blocks = []
        table.committed = 0
        table.changed_from = 0

    def _take(self) -> int:
        if not self._pool.num_free:
            self._pool.reclaim(self._tree.evict())
        return self._pool.take()

    def _drop(self, block: int, *, keep: bool = True) -> None:
        if self._pool.drop(block):
            return
        if self._tree.holds(block) and (keep or not self._tree.forget(block)):
            self._tree.park(block)
        else:
            self._pool.reclaim(block)

    def check(self, tables: Iterable[BlockTable]) -> None:
        """Assert that free + idle + held = total, and that holders are exactly the given tables."""
        held = Counter(block for table in tables for block in table.blocks)
        free, idle = self._pool.free_blocks(), self._tree.idle_blocks()
        assert len(set(free)) == len(free), "a block is free twice"
        assert not set(free) & held.keys(), "a free block is held"
        assert not set(idle) & held.keys(), "an idle block is held"
        assert not set(idle) & set(free), "an idle block is free"
        assert len(free) + len(idle) + len(held) == self.num_blocks, "blocks were lost"
        for block, holders in held.items():
            assert self._pool.holders(block) == holders, f"block {block} has a wrong holder count"
        self._tree.check()
