"""The prefix tree finds blocks by digest and forgets the least recently used one first."""

from __future__ import annotations

import pytest

from penstock.engine.memory.prefix import PrefixTree


def tree_of(*paths: str) -> PrefixTree:
    """One node for each letter on each path; a node's block is the letter's place in the alphabet."""
    tree = PrefixTree()
    for path in paths:
        for at in range(len(path)):
            digest, parent = path[: at + 1].encode(), path[:at].encode()
            if tree.find(digest) is None:
                tree.insert(digest, ord(path[at]) - ord("a"), parent or None)
    return tree


def digests(path: str) -> list[bytes]:
    return [path[: at + 1].encode() for at in range(len(path))]


def test_the_longest_known_run_from_the_start_is_found() -> None:
    tree = tree_of("abc")
    assert [node.block for node in tree.match(digests("abx"), 9)] == [0, 1]
    assert [node.block for node in tree.match(digests("abc"), 2)] == [0, 1]
    assert tree.match(digests("xbc"), 9) == []
    assert tree.match([], 9) == []


def test_the_least_recently_used_goes_first() -> None:
    tree = tree_of("a", "b", "c")
    for block in (1, 2, 0):
        tree.park(block)
    assert [tree.evict() for _ in range(3)] == [1, 2, 0]
    assert len(tree) == 0


def test_being_used_again_moves_a_block_to_the_end_of_the_line() -> None:
    tree = tree_of("a", "b")
    tree.park(0)
    tree.park(1)
    tree.unpark(0)
    tree.park(0)
    assert [tree.evict(), tree.evict()] == [1, 0]


def test_a_block_in_use_is_not_evicted() -> None:
    tree = tree_of("a", "b")
    tree.park(0)
    tree.park(1)
    tree.unpark(0)
    assert tree.num_idle == 1
    assert tree.evict() == 1
    assert tree.find(b"a") is not None


def test_evicting_a_parent_before_its_child_is_noticed() -> None:
    tree = tree_of("ab")
    tree.park(0)
    tree.park(1)
    with pytest.raises(AssertionError, match="would be evicted before"):
        tree.evict()


def test_an_evicted_block_is_held_and_found_no_more() -> None:
    tree = tree_of("ab")
    tree.park(1)
    tree.park(0)
    assert tree.evict() == 1
    assert not tree.holds(1)
    assert tree.find(b"ab") is None
    tree.check()


def test_an_idle_parent_of_a_held_child_is_noticed() -> None:
    tree = tree_of("ab")
    tree.park(0)
    with pytest.raises(AssertionError, match="held child"):
        tree.check()
