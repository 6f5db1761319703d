"""Which prefixes a step reads once for several sequences, as the kernels are told."""

from __future__ import annotations

import pytest
import torch

from penstock.engine.gpu.prefixes import LEAST_MEMBERS, LEAST_TOKENS, PrefixPlanner
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Step

SIZE = 64  # tokens of a block
SHARED = LEAST_TOKENS // SIZE  # blocks
MOST = 16
DEVICE = torch.device("cpu")


def planner() -> tuple[PrefixPlanner, Slots]:
    return PrefixPlanner(MOST, SIZE, DEVICE), Slots(MOST + 1, 1024, 16, DEVICE)


def step(tables: dict[int, list[int]]) -> Step:
    """Decodes of these slots, each in the last of its blocks."""
    starts = [(len(table) - 1) * SIZE + 3 for table in tables.values()]
    return Step(list(tables), starts, [1] * len(tables), list(tables.values()))


def sharing(slots: range, first: int, blocks: int = SHARED) -> dict[int, list[int]]:
    """Tables that begin with the same blocks, from `first` on, and end with one of their own."""
    return {slot: [*range(first, first + blocks), 500 + slot] for slot in slots}


def told(planned: PrefixPlanner, sequences: int) -> tuple[list[int], list[list[int]], list[int], list[int]]:
    """Shared tokens of each sequence; of each tile its members, whose table it reads, and how many tokens."""
    found = planned.on_device(sequences, 1)
    members = [[member for member in tile if member >= 0] for tile in found.members.tolist()]
    return found.lengths.tolist(), members, found.slots.tolist(), found.spans.tolist()


def test_a_prefix_is_read_from_the_table_of_its_first_member() -> None:
    planned, slots = planner()
    planned.plan(step({9: [90, 91], **sharing(range(2, 6), 0)}), slots)
    assert (planned.tiles, planned.longest) == (1, SHARED * SIZE)
    assert told(planned, 5) == ([0, *[SHARED * SIZE] * 4], [[1, 2, 3, 4]], [2], [SHARED * SIZE])


def test_when_the_first_member_leaves_another_table_is_read() -> None:
    planned, slots = planner()
    planned.plan(step(sharing(range(2, 7), 0)), slots)
    planned.plan(step(sharing(range(3, 7), 0)), slots)
    assert told(planned, 4) == ([SHARED * SIZE] * 4, [[0, 1, 2, 3]], [3], [SHARED * SIZE])


def test_a_slot_that_another_prompt_has_taken_shares_no_more() -> None:
    planned, slots = planner()
    planned.plan(step(sharing(range(5), 0)), slots)
    slots.loads += 1  # somebody new, in the same slots
    planned.plan(step({**sharing(range(4), 0), 4: [40, 41, 42, 43, 44]}), slots)
    assert told(planned, 5) == ([*[SHARED * SIZE] * 4, 0], [[0, 1, 2, 3]], [0], [SHARED * SIZE])


def test_too_few_members_left_share_nothing() -> None:
    planned, slots = planner()
    planned.plan(step(sharing(range(LEAST_MEMBERS), 0)), slots)
    planned.plan(step(sharing(range(LEAST_MEMBERS - 1), 0)), slots)
    assert planned.tiles == planned.longest == 0


def test_tiles_of_groups_that_are_gone_read_nothing() -> None:
    planned, slots = planner()
    groups = [sharing(range(4 * number, 4 * number + 4), 20 * number) for number in range(3)]
    planned.plan(step({slot: table for group in groups for slot, table in group.items()}), slots)
    assert planned.tiles == 4, "three, and one that fills them up"
    assert told(planned, 12)[1:] == (
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], []],
        [0, 4, 8, 0],
        [*[SHARED * SIZE] * 3, 0],
    )
    planned.plan(step({**groups[0], **groups[2], 5: [60, 61]}), slots)
    assert planned.tiles == 2
    assert told(planned, 9)[:3] == ([*[SHARED * SIZE] * 8, 0], [[0, 1, 2, 3], [4, 5, 6, 7]], [0, 8])
    # What a step of more tiles would still see.
    everything = planned._members, planned._tiles
    assert (everything[0][2:] == -1).all()
    assert (everything[1][:, 2:] == 0).all()


def test_choices_that_share_their_whole_table_are_one_group() -> None:
    planned, slots = planner()
    same = list(range(6))
    planned.plan(step(dict.fromkeys(range(4), same)), slots)
    # The last block is written to, so it is nobody's to share.
    assert told(planned, 4) == ([5 * SIZE] * 4, [[0, 1, 2, 3]], [0], [5 * SIZE])


def test_a_plan_that_failed_is_made_again() -> None:
    planned, slots = planner()
    good = step(sharing(range(4), 0))
    broken = Step(good.slots, good.starts, good.counts, good.tables[:-1])
    with pytest.raises(ValueError, match="argument"):
        planned.plan(broken, slots)
    planned.plan(good, slots)
    assert planned.tiles == 1
