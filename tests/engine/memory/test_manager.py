"""What the scheduler is promised by KV memory, one sentence at a time."""

from __future__ import annotations

import pytest

from penstock.engine.memory.manager import BlockTable, KnownPrefix, KVMemory

SIZE = 4
RANK = (1.0, 1)  # of whoever computes
PROMPT = list(range(10))  # two full blocks and half of one


def computed_table(memory: KVMemory, tokens: list[int], salt: str = "") -> BlockTable:
    """A table whose tokens are all computed and published."""
    table = memory.new_table(salt)
    start = memory.adopt_prefix(table, tokens, RANK)
    assert memory.can_grow(table, start, len(tokens))
    memory.grow(table, start, len(tokens))
    memory.commit(table, tokens, len(tokens))
    return table


def test_a_table_takes_only_the_blocks_its_tokens_need() -> None:
    memory = KVMemory(8, SIZE)
    table = memory.new_table("")
    memory.grow(table, 0, 4)
    assert len(table.blocks) == 1
    memory.grow(table, 4, 5)
    assert len(table.blocks) == 2
    memory.grow(table, 5, 8)
    assert len(table.blocks) == 2
    assert memory.num_free == 6


def test_growth_beyond_the_memory_is_foreseen() -> None:
    memory = KVMemory(2, SIZE)
    table = memory.new_table("")
    assert memory.can_grow(table, 0, 8)
    assert not memory.can_grow(table, 0, 9)


def test_full_blocks_of_a_finished_sequence_are_reused() -> None:
    memory = KVMemory(8, SIZE)
    first = computed_table(memory, PROMPT)
    blocks = list(first.blocks)
    memory.release(first)
    assert (memory.num_free, memory.num_cached) == (6, 2)
    again = memory.new_table("")
    assert memory.adopt_prefix(again, PROMPT, RANK) == 8
    assert again.blocks == blocks[:2]
    assert memory.num_cached == 0


def test_full_blocks_of_a_running_sequence_are_shared() -> None:
    memory = KVMemory(8, SIZE)
    first = computed_table(memory, PROMPT)
    second = memory.new_table("")
    assert memory.adopt_prefix(second, PROMPT, RANK) == 8
    assert second.blocks == first.blocks[:2]
    memory.release(first)
    memory.check([second])
    assert memory.num_cached == 0, "the second one still holds them"


def test_the_last_token_is_always_left_to_compute() -> None:
    memory = KVMemory(8, SIZE)
    memory.release(computed_table(memory, list(range(8))))
    table = memory.new_table("")
    assert memory.peek(table, list(range(8))).blocks == 1
    assert memory.adopt_prefix(table, list(range(8)), RANK) == 4


def test_a_half_filled_block_is_nobody_elses() -> None:
    memory = KVMemory(8, SIZE)
    memory.release(computed_table(memory, PROMPT[:3]))
    assert memory.num_cached == 0
    assert memory.adopt_prefix(memory.new_table(""), PROMPT, RANK) == 0


def test_tenants_share_nothing() -> None:
    memory = KVMemory(8, SIZE)
    memory.release(computed_table(memory, PROMPT, "acme"))
    other = memory.new_table("umbrella")
    assert memory.peek(other, PROMPT) == KnownPrefix(0, 0, None)
    assert memory.adopt_prefix(other, PROMPT, RANK) == 0


def test_without_prefix_caching_nothing_is_kept() -> None:
    memory = KVMemory(8, SIZE, prefix_caching=False)
    memory.release(computed_table(memory, PROMPT))
    assert (memory.num_free, memory.num_cached) == (8, 0)
    assert memory.peek(memory.new_table(""), PROMPT) == KnownPrefix(0, 0, None)


def test_a_block_that_somebody_computes_is_coming_until_it_is_there() -> None:
    memory = KVMemory(8, SIZE)
    first, second = memory.new_table(""), memory.new_table("")
    memory.adopt_prefix(first, PROMPT, RANK)
    assert memory.peek(second, PROMPT) == KnownPrefix(0, 0, RANK)
    memory.grow(first, 0, 4)
    memory.commit(first, PROMPT, 4)
    assert memory.peek(second, PROMPT) == KnownPrefix(1, 0, RANK)
    memory.grow(first, 4, 10)
    memory.commit(first, PROMPT, 10)
    assert memory.peek(second, PROMPT) == KnownPrefix(2, 0, None)


def test_a_block_is_not_coming_once_its_computer_has_gone() -> None:
    memory = KVMemory(8, SIZE)
    first, second = memory.new_table(""), memory.new_table("")
    memory.adopt_prefix(first, PROMPT, RANK)
    memory.release(first)
    assert memory.peek(second, PROMPT) == KnownPrefix(0, 0, None)


def test_only_the_part_in_common_is_awaited() -> None:
    memory = KVMemory(8, SIZE)
    first, second = memory.new_table(""), memory.new_table("")
    memory.adopt_prefix(first, PROMPT, RANK)
    assert memory.peek(second, [9, *PROMPT]).coming is None
    assert memory.peek(second, PROMPT[:3]).coming is None, "too short to share anything"


def test_of_two_that_computed_the_same_block_one_copy_is_kept() -> None:
    memory = KVMemory(8, SIZE)
    first, second = memory.new_table(""), memory.new_table("")
    for table in (first, second):
        memory.grow(table, 0, 8)
    memory.commit(first, list(range(8)), 8)
    memory.commit(second, list(range(8)), 8)
    assert first.blocks == second.blocks
    assert second.changed_from == 0, "the device must be told"
    assert memory.num_free == 6


def test_a_fork_shares_until_one_of_them_writes() -> None:
    memory = KVMemory(8, SIZE)
    first = computed_table(memory, PROMPT)
    fork = memory.fork(first, 9)
    assert fork.blocks == first.blocks
    copy = memory.grow(fork, 9, 10)
    assert copy == (first.blocks[2], fork.blocks[2])
    assert fork.blocks[:2] == first.blocks[:2]
    assert fork.blocks[2] != first.blocks[2]
    assert memory.grow(first, 10, 11) is None, "the block is the first one's own again"
    memory.check([first, fork])


def test_the_first_one_copies_when_it_writes_before_its_fork() -> None:
    memory = KVMemory(8, SIZE, prefix_caching=False)
    first = computed_table(memory, PROMPT)
    fork = memory.fork(first, 10)
    shared = first.blocks[2]
    assert memory.grow(first, 10, 11) == (shared, first.blocks[2])
    assert fork.blocks[2] == shared
    assert memory.grow(fork, 10, 11) is None
    memory.check([first, fork])


def test_a_fork_at_a_block_border_needs_no_copy() -> None:
    memory = KVMemory(8, SIZE)
    first = computed_table(memory, list(range(9)))
    fork = memory.fork(first, 8)
    assert fork.blocks == first.blocks[:2]
    assert memory.grow(fork, 8, 9) is None
    memory.check([first, fork])


def test_a_published_block_is_not_written_again_even_by_its_only_holder() -> None:
    memory = KVMemory(8, SIZE)
    first = computed_table(memory, list(range(8)))
    fork = memory.fork(first, 7)
    published = first.blocks[1]
    memory.release(first)
    assert memory.grow(fork, 7, 8) == (published, fork.blocks[1])
    assert memory.num_cached == 1, "it stays findable"
    memory.check([fork])


def test_can_grow_counts_the_block_that_a_copy_needs() -> None:
    memory = KVMemory(3, SIZE, prefix_caching=False)
    first = computed_table(memory, PROMPT)
    fork = memory.fork(first, 9)
    assert not memory.can_grow(fork, 9, 10)
    memory.release(first)
    assert memory.can_grow(fork, 9, 10)


def test_the_prefix_used_longest_ago_is_evicted_first_and_from_its_end() -> None:
    memory = KVMemory(6, 2)
    old, young = [1, 1, 1, 1], [2, 2, 2, 2]
    for tokens in (old, young):
        memory.release(computed_table(memory, tokens))
    memory.release(computed_table(memory, [*old, 3]))  # old is used again
    assert memory.num_free == 2
    table = memory.new_table("x")
    memory.grow(table, 0, 6)  # one more than is free
    assert memory.peek(memory.new_table(""), [*young, 0]).blocks == 1, "its second block went"
    assert memory.peek(memory.new_table(""), [*old, 0]).blocks == 2
    memory.grow(table, 6, 8)
    assert memory.peek(memory.new_table(""), [*young, 0]).blocks == 0
    assert memory.peek(memory.new_table(""), [*old, 0]).blocks == 2


def test_blocks_in_use_survive_any_pressure() -> None:
    memory = KVMemory(4, 2)
    held = computed_table(memory, [1, 1, 1, 1])
    other = memory.new_table("")
    memory.grow(other, 0, 4)
    assert memory.available == 0
    assert not memory.can_grow(other, 4, 5)
    memory.check([held, other])


def test_releasing_twice_frees_nothing_twice() -> None:
    memory = KVMemory(4, SIZE)
    table = computed_table(memory, PROMPT)
    memory.release(table)
    memory.release(table)
    memory.check([])
    assert memory.available == 4


@pytest.mark.parametrize("lost", ["table", "extra"])
def test_the_check_notices_holders_that_do_not_add_up(lost: str) -> None:
    memory = KVMemory(4, SIZE)
    first = computed_table(memory, PROMPT)
    second = memory.fork(first, 8)
    tables = [first] if lost == "table" else [first, second, second]
    with pytest.raises(AssertionError):
        memory.check(tables)


def test_what_a_broken_sequence_computed_is_forgotten() -> None:
    memory = KVMemory(8, SIZE)
    table = computed_table(memory, PROMPT)
    memory.release(table, keep=False)
    assert memory.num_free == 8
    assert memory.peek(memory.new_table(""), PROMPT).blocks == 0


def test_forgetting_spares_what_others_hold_or_build_on() -> None:
    memory = KVMemory(8, SIZE)
    broken = computed_table(memory, PROMPT)
    other = computed_table(memory, [*PROMPT[:4], 7, 7, 7, 7, 7])
    memory.release(broken, keep=False)
    memory.check([other])
    assert memory.peek(memory.new_table(""), [*PROMPT[:4], 7, 7, 7, 7, 7]).blocks == 2
    assert memory.peek(memory.new_table(""), PROMPT).blocks == 1
