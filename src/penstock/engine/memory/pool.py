"""A fixed number of blocks with reference counts."""

from __future__ import annotations


class BlockPool:
    """Hands out block numbers and counts their holders.

    A block with no holder is either free or *parked*: kept by the prefix tree because
    its content may be wanted again. Parking is the tree's business; the pool only
    refuses to hand a parked block out until the tree gives it back with `reclaim`.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._holders = [0] * num_blocks
        # A stack: the block freed last is used first, so that an idle server touches
        # no more memory than its peak needed.
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """A free block, with one holder. The caller checked that there is one."""
        block = self._free.pop()
        self._holders[block] = 1
        return block

    def share(self, block: int) -> int:
        """One more holder; returns how many there are now."""
        self._holders[block] += 1
        return self._holders[block]

    def drop(self, block: int) -> int:
        """One holder less; returns how many are left. At zero the block belongs to the caller."""
        holders = self._holders[block] - 1
        if holders < 0:
            raise AssertionError(f"block {block} was released more often than it was taken")
        self._holders[block] = holders
        return holders

    def reclaim(self, block: int) -> None:
        """Back to the free blocks; it must have no holder."""
        if self._holders[block]:
            raise AssertionError(f"block {block} still has {self._holders[block]} holders")
        self._free.append(block)

    def holders(self, block: int) -> int:
        return self._holders[block]

    def free_blocks(self) -> list[int]:
        return list(self._free)
