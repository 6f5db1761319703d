"""Sequences that begin with the same blocks are found, so that those are read once."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from penstock.engine.memory.sharing import Group, shared_prefixes

SIZE = 16
fresh = count(1000)


def own(blocks: int) -> list[int]:
    return [next(fresh) for _ in range(blocks)]


def test_nobody_shares_anything() -> None:
    assert shared_prefixes([own(40) for _ in range(9)], SIZE) == []
    assert shared_prefixes([], SIZE) == []


def test_all_share_a_prefix() -> None:
    stem = own(20)
    tables = [stem + own(5) for _ in range(6)]
    assert shared_prefixes(tables, SIZE) == [Group([0, 1, 2, 3, 4, 5], 20)]


def test_a_table_that_ends_where_others_go_on_takes_part() -> None:
    stem = own(20)
    tables = [stem + own(2), stem, stem + own(3), list(stem)]
    assert shared_prefixes(tables, SIZE) == [Group([0, 1, 2, 3], 20)]


@pytest.mark.parametrize(("blocks", "members", "found"), [(16, 4, 1), (15, 4, 0), (16, 3, 0)])
def test_short_prefixes_and_small_groups_are_left(blocks: int, members: int, found: int) -> None:
    stem = own(blocks)
    tables = [stem + own(9) for _ in range(members)]
    assert len(shared_prefixes(tables, SIZE, least_tokens=256, least_members=4)) == found


def test_the_same_block_behind_another_beginning_is_not_shared() -> None:
    end = own(20)
    assert shared_prefixes([[*own(1), *end] for _ in range(8)], SIZE) == []


def test_who_shares_more_with_some_goes_with_those_where_that_saves_more() -> None:
    stem, branch = own(16), own(100)
    close = [[*stem, *branch, *own(2)] for _ in range(5)]
    distant = [[*stem, *own(2)] for _ in range(10)]
    assert shared_prefixes([*close, *distant], SIZE) == [
        Group([0, 1, 2, 3, 4], 116),
        Group(list(range(5, 15)), 16),
    ]


def test_a_branch_too_short_to_save_more_stays_with_the_rest() -> None:
    stem, branch = own(16), own(2)
    close = [[*stem, *branch, *own(2)] for _ in range(4)]
    distant = [[*stem, *own(2)] for _ in range(10)]
    assert shared_prefixes([*close, *distant], SIZE) == [Group(list(range(14)), 16)]


@pytest.mark.parametrize("seed", range(20))
def test_a_long_prefix_reaches_to_the_first_difference(seed: int) -> None:
    rng = Random(seed)
    stem, kept = own(700), [rng.randint(16, 700) for _ in range(6)]
    tables = [[*stem[:blocks], *own(rng.randint(0, 300))] for blocks in kept]
    found = shared_prefixes(tables, SIZE, least_members=6)
    assert found == [Group([0, 1, 2, 3, 4, 5], min(kept))]


@pytest.mark.parametrize("seed", range(30))
def test_any_groups_are_true_apart_and_no_worse_than_one_for_each_beginning(seed: int) -> None:
    rng = Random(seed)
    tables: list[list[int]] = [[]]
    for _ in range(rng.randint(1, 60)):
        parent = rng.choice(tables)
        tables.append([*parent[: rng.randint(0, len(parent))], *own(rng.randint(0, 9))])
    groups = shared_prefixes(tables, SIZE, least_tokens=3 * SIZE, least_members=3)
    members = [member for group in groups for member in group.members]
    assert len(set(members)) == len(members)
    for group in groups:
        assert group.blocks >= 3
        assert len(group.members) >= 3
        assert len({tuple(tables[member][: group.blocks]) for member in group.members}) == 1
    beginnings: dict[tuple[int, ...], int] = {}
    for table in tables:
        if len(table) >= 3:
            beginnings[tuple(table[:3])] = beginnings.get(tuple(table[:3]), 0) + 1
    least = sum(3 * (count - 1) for count in beginnings.values() if count >= 3)
    assert sum((len(group.members) - 1) * group.blocks for group in groups) >= least
