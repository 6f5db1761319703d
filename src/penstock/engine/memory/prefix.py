"""The prefix tree: which block holds which prefix, and which unused one goes first.

A radix tree whose edges are blocks. Because a block's digest names its whole prefix,
a node is found by digest alone; parents and children matter for eviction.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class PrefixNode:
    digest: bytes
    block: int
    parent: PrefixNode | None
    children: int = 0


class PrefixTree:
    """Invariants: a node's parent is in the tree as long as the node is; an idle node's
    children are idle. So the least recently used idle node without children always exists
    when any node is idle, and evicting it never cuts off another."""

    def __init__(self) -> None:
        self._nodes: dict[bytes, PrefixNode] = {}
        self._by_block: dict[int, PrefixNode] = {}
        # Nodes held by nobody, least recently used first. Holders release the end of
        # their prefix before its beginning, so children come before their parents.
        self._idle: OrderedDict[bytes, PrefixNode] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    def find(self, digest: bytes) -> PrefixNode | None:
        return self._nodes.get(digest)

    def holds(self, block: int) -> bool:
        return block in self._by_block

    def match(self, digests: list[bytes], limit: int) -> list[PrefixNode]:
        """The longest run of known blocks from the start, at most `limit`."""
        found: list[PrefixNode] = []
        for digest in digests[:limit]:
            node = self._nodes.get(digest)
            if node is None:
                break
            found.append(node)
        return found

    def insert(self, digest: bytes, block: int, parent_digest: bytes | None) -> None:
        parent = self._nodes[parent_digest] if parent_digest is not None else None
        node = PrefixNode(digest, block, parent)
        if parent is not None:
            parent.children += 1
        self._nodes[digest] = node
        self._by_block[block] = node

    def park(self, block: int) -> None:
        """The last holder of `block` has gone."""
        node = self._by_block[block]
        self._idle[node.digest] = node

    def unpark(self, block: int) -> None:
        """`block` has a holder again."""
        self._idle.pop(self._by_block[block].digest, None)

    def evict(self) -> int:
        """Forget the least recently used idle node; returns its block."""
        _, node = self._idle.popitem(last=False)
        if not self.forget(node.block):
            raise AssertionError(
                f"block {node.block} would be evicted before the {node.children} that follow it"
            )
        return node.block

    def forget(self, block: int) -> bool:
        """Take the node of `block` out, unless others follow it."""
        node = self._by_block[block]
        if node.children:
            return False
        del self._nodes[node.digest]
        del self._by_block[block]
        if node.parent is not None:
            node.parent.children -= 1
        return True

    def idle_blocks(self) -> list[int]:
        return [node.block for node in self._idle.values()]

    def check(self) -> None:
        """Assert the invariants of the class docstring."""
        for node in self._nodes.values():
            if node.parent is not None:
                assert self._nodes.get(node.parent.digest) is node.parent, "a node outlived its parent"
                if node.parent.digest in self._idle:
                    assert node.digest in self._idle, "an idle node has a held child"
