"""Prefixes are computed once: cached, awaited, and forked for several choices."""

from __future__ import annotations

import pytest

from tests.engine.schedule.machine import Machine

STEM = [10 + at for at in range(20)]  # five blocks of four


def test_a_cached_prefix_is_not_computed_again() -> None:
    machine = Machine()
    machine.submit("a", [*STEM, 1], max_tokens=1)
    machine.run()
    machine.submit("b", [*STEM, 2], max_tokens=1)
    sequence = machine.sequence("b")
    machine.run()
    assert machine.computed == {"a": 21, "b": 1}
    assert sequence.cached == 20
    assert (machine.scheduler.prefix_queries, machine.scheduler.prefix_hits) == (42, 20)


def test_an_identical_prompt_computes_only_what_is_needed_for_its_next_token() -> None:
    machine = Machine()
    for name in "ab":
        machine.submit(name, list(STEM), max_tokens=1)
        machine.run()
    assert machine.computed["b"] == 4, "the last block: its last token's logits are needed"


def test_output_is_cached_too_so_that_a_conversation_goes_on_where_it_was() -> None:
    machine = Machine()
    machine.submit("a", list(STEM), max_tokens=9)
    machine.run()
    history = [*STEM, *machine.outputs["a", 0]]
    machine.submit("b", [*history, 1, 2], max_tokens=1)
    machine.run()
    assert machine.computed["b"] == 31 - 28


def test_tenants_do_not_profit_from_each_other() -> None:
    machine = Machine()
    machine.submit("a", [*STEM, 1], max_tokens=1, salt="acme")
    machine.run()
    machine.submit("b", [*STEM, 1], max_tokens=1, salt="umbrella")
    machine.run()
    assert machine.computed["b"] == 21


def test_a_prefix_that_is_being_computed_is_awaited_and_taken_from_the_cache() -> None:
    machine = Machine(max_step_tokens=8)
    machine.submit("a", [*STEM, 1], max_tokens=5)
    machine.submit("b", [*STEM, 2], max_tokens=5)
    while machine.sequence("a").computed < 20:
        machine.step()
        assert machine.waiting == ["b"]
    machine.run()
    assert machine.computed["a"] == 21 + 4
    assert machine.computed["b"] == 1 + 4


def test_those_who_share_nothing_do_not_wait_with_them() -> None:
    machine = Machine(max_step_tokens=24)
    machine.submit("a", [*STEM, 1], max_tokens=1)
    machine.submit("b", [*STEM, 2], max_tokens=1)
    machine.submit("c", 3, max_tokens=1)
    assert machine.granted(machine.step()) == {"a": 21, "c": 3}
    machine.run()


def test_another_tenants_prefix_is_not_awaited() -> None:
    machine = Machine(max_step_tokens=50)
    machine.submit("a", [*STEM, 1], max_tokens=1, salt="acme")
    machine.submit("b", [*STEM, 2], max_tokens=1, salt="umbrella")
    assert machine.granted(machine.step()) == {"a": 21, "b": 21}


def test_without_prefix_caching_nobody_waits_for_a_prefix() -> None:
    machine = Machine(max_step_tokens=50, prefix_caching=False)
    machine.submit("a", [*STEM, 1], max_tokens=1)
    machine.submit("b", [*STEM, 2], max_tokens=1)
    assert machine.granted(machine.step()) == {"a": 21, "b": 21}


def test_of_several_better_ones_only_the_first_computes_what_a_worse_one_has_begun() -> None:
    machine = Machine(max_running=8, max_step_tokens=16, blocks=400, max_model_len=400, ageing_seconds=1000.0)
    stem = [1] * 40
    machine.submit("low", [*stem, 2], max_tokens=1, priority=9)
    machine.step()
    for name in "abc":
        machine.submit(name, [*stem, ord(name) % 50], max_tokens=1)
    machine.run()
    assert machine.computed["a"] == 41 - 16
    assert machine.computed["b"] == machine.computed["c"] == 1


@pytest.mark.parametrize("steps", [1, 2])
def test_whoever_waits_for_a_cancelled_one_computes_the_rest_itself(steps: int) -> None:
    machine = Machine(max_step_tokens=8)
    machine.submit("a", [*STEM, 1], max_tokens=5)
    machine.submit("b", [*STEM, 2], max_tokens=5)
    machine.submit("c", [*STEM, 3], max_tokens=5)
    for _ in range(steps):
        machine.step()
    assert machine.waiting == ["b", "c"]
    machine.cancel("a")
    machine.run()
    assert machine.computed["b"] == 21 - 8 * steps + 4
    assert machine.computed["c"] == 1 + 4, "the third one waited on, now for the second"


def test_whoever_waits_for_a_preempted_one_is_not_stuck() -> None:
    machine = Machine(blocks=12, block_size=4, max_model_len=48, max_step_tokens=8, max_running=3)
    machine.submit("high", 9, max_tokens=30, priority=-1)
    machine.submit("a", [*STEM, 1], max_tokens=20)
    machine.submit("b", [*STEM, 2], max_tokens=20)
    machine.run()


# ---------------------------------------------------------------- several choices


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("length", [1, 4, 5, 8, 11, 21])
def test_choices_share_the_prompts_blocks_and_compute_it_once(length: int, prefix_caching: bool) -> None:
    machine = Machine(prefix_caching=prefix_caching, max_running=4, max_step_tokens=32)
    machine.submit("a", length, n=4, max_tokens=6)
    machine.step()
    assert len(machine.running) == 1
    assert len(machine.waiting) == 3
    machine.step()
    first, *others = (machine.sequence("a", index) for index in range(4))
    shared = (length - 1) // 4
    for other in others:
        assert other.table.blocks[:shared] == first.table.blocks[:shared]
        assert not set(other.table.blocks[length // 4 :]) & set(first.table.blocks[length // 4 :])
    machine.run()
    # The prompt once, its last token once more for each other choice, and every output but the last.
    assert machine.computed["a"] == length + 3 + 4 * 5


def test_choices_differ() -> None:
    machine = Machine(max_running=4)
    machine.submit("a", 9, n=4, max_tokens=12)
    machine.run()
    assert len({tuple(machine.outputs["a", index]) for index in range(4)}) == 4


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("max_running", [1, 2, 3])
def test_more_choices_than_slots_all_get_their_turn(max_running: int, prefix_caching: bool) -> None:
    machine = Machine(prefix_caching=prefix_caching, max_running=max_running)
    machine.submit("a", 11, n=7, max_tokens=5)
    machine.run()
    assert len(machine.ends) == 7


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize("index", [0, 1, None])
def test_cancelling_a_choice_at_any_time_harms_no_other(
    index: int | None, after: int, prefix_caching: bool
) -> None:
    machine = Machine(prefix_caching=prefix_caching, max_running=2, max_step_tokens=8)
    machine.submit("a", 19, n=3, max_tokens=6)
    machine.submit("b", 19, n=2, max_tokens=6)
    for _ in range(after):
        machine.step()
    machine.cancel("a", index)
    machine.run()
    ended = {key for key, reason in machine.ends.items() if reason == "length"}
    assert {key for key in ended if key[0] == "b"} == {("b", 0), ("b", 1)}
    if index is not None:
        assert {key for key in ended if key[0] == "a"} >= {("a", at) for at in range(3) if at != index}


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_choices_survive_being_preempted(prefix_caching: bool) -> None:
    machine = Machine(blocks=12, block_size=4, max_model_len=48, max_running=4, prefix_caching=prefix_caching)
    machine.submit("a", 10, n=4, max_tokens=24)
    machine.submit("b", 10, n=2, max_tokens=24)
    machine.run()
    assert machine.scheduler.preemptions > 0


def test_a_choice_that_ends_at_once_leaves_the_prompt_to_the_others() -> None:
    machine = Machine(max_running=4, max_step_tokens=32)
    machine.submit("a", 21, n=4, max_tokens=1)
    machine.run()
    assert machine.computed["a"] == 21 + 3 * 1
