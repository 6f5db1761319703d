"""The block pool hands out each block once and counts its holders."""

from __future__ import annotations

import pytest

from penstock.engine.memory.pool import BlockPool


def test_every_block_is_handed_out_once() -> None:
    pool = BlockPool(5)
    assert sorted(pool.take() for _ in range(5)) == [0, 1, 2, 3, 4]
    assert pool.num_free == 0
    with pytest.raises(IndexError):
        pool.take()


def test_the_block_freed_last_is_used_first() -> None:
    pool = BlockPool(5)
    first, second = pool.take(), pool.take()
    for block in (first, second):
        pool.drop(block)
        pool.reclaim(block)
    assert pool.take() == second


def test_a_block_is_the_callers_again_when_the_last_holder_drops_it() -> None:
    pool = BlockPool(2)
    block = pool.take()
    assert pool.share(block) == 2
    assert pool.drop(block) == 1
    assert pool.drop(block) == 0
    assert pool.num_free == 1, "nobody has given it back yet"
    pool.reclaim(block)
    assert pool.num_free == 2


def test_dropping_more_often_than_taking_is_noticed() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.drop(block)
    with pytest.raises(AssertionError, match="released more often"):
        pool.drop(block)


def test_a_held_block_cannot_be_given_back() -> None:
    pool = BlockPool(2)
    block = pool.take()
    with pytest.raises(AssertionError, match="still has 1 holder"):
        pool.reclaim(block)
