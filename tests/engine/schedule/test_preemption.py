"""When memory or slots run out, the youngest of the lowest priority goes back, and loses nothing."""

from __future__ import annotations

import pytest

from tests.engine.schedule.machine import Machine


def crowded(**options: int | bool) -> Machine:
    """Memory for about two of the requests below at full length."""
    return Machine(blocks=12, block_size=4, max_model_len=48, **options)


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_a_preempted_request_ends_with_the_tokens_it_would_have_had(prefix_caching: bool) -> None:
    machine = crowded(prefix_caching=prefix_caching)
    for name in "abc":
        machine.submit(name, 9, max_tokens=30)
    machine.run()
    assert machine.scheduler.preemptions > 0
    assert machine.preempted.count("a") == 0, "the first in order is never preempted"


def test_the_youngest_goes_first() -> None:
    machine = crowded(prefix_caching=False)
    for name in "abc":
        machine.submit(name, 9, max_tokens=30)
    while not machine.preempted:
        machine.step()
    assert machine.preempted == ["c"]
    machine.run()


def test_the_lowest_priority_goes_before_the_youngest() -> None:
    machine = crowded(prefix_caching=False)
    machine.submit("low", 9, max_tokens=30, priority=5)
    machine.submit("old", 9, max_tokens=30)
    machine.submit("young", 9, max_tokens=30)
    while len(set(machine.preempted)) < 2:
        machine.step()
    assert list(dict.fromkeys(machine.preempted)) == ["low", "young"]
    machine.run()


def test_of_equal_low_priority_the_youngest_goes_first() -> None:
    machine = crowded(prefix_caching=False)
    machine.submit("low old", 9, max_tokens=30, priority=5)
    machine.submit("low young", 9, max_tokens=30, priority=5)
    machine.submit("high", 9, max_tokens=30)
    while not machine.preempted:
        machine.step()
    assert machine.preempted == ["low young"]
    machine.run()


def test_a_preempted_request_keeps_its_place_before_later_arrivals() -> None:
    machine = crowded(prefix_caching=False)
    for name in "abc":
        machine.submit(name, 9, max_tokens=30)
    while not machine.preempted:
        machine.step()
    machine.submit("later", 2, max_tokens=1)
    assert machine.waiting == ["c", "later"]
    machine.run()


def test_what_the_prefix_cache_still_has_is_not_computed_again() -> None:
    with_cache, without = crowded(), crowded(prefix_caching=False)
    for machine in (with_cache, without):
        machine.submit("a", 9, max_tokens=30)
        machine.submit("b", 9, max_tokens=30)
        machine.run()
        assert machine.preempted
        assert machine.outputs == with_cache.outputs
    assert with_cache.computed["b"] < without.computed["b"]


def test_a_better_arrival_takes_the_slot_of_a_worse_one() -> None:
    machine = Machine(max_running=2)
    machine.submit("low old", 3, max_tokens=20, priority=1)
    machine.submit("low young", 3, max_tokens=20, priority=1)
    machine.step()
    machine.submit("high", 3, max_tokens=3)
    plan = machine.step()
    assert machine.preempted == ["low young"]
    assert machine.granted(plan) == {"high": 3}  # and the other one's next token waits for it
    machine.run()


def test_a_better_arrival_takes_the_memory_of_a_worse_one() -> None:
    machine = Machine(blocks=10, block_size=4, max_model_len=40, max_step_tokens=40, prefix_caching=False)
    machine.submit("low", 30, max_tokens=5, priority=1)
    machine.step()
    machine.submit("high", 20, max_tokens=3)
    assert machine.granted(machine.step()) == {"high": 20}
    assert machine.preempted == ["low"]
    machine.run()


def test_an_equal_arrival_takes_nothing_from_anybody() -> None:
    machine = Machine(max_running=1)
    machine.submit("a", 3, max_tokens=20)
    machine.step()
    machine.submit("b", 3, max_tokens=3)
    machine.run()
    assert machine.preempted == []


def test_an_equal_that_was_overtaken_takes_nothing_back() -> None:
    stem = [1] * 20
    machine = Machine(max_running=2, max_step_tokens=16)
    machine.submit("first", [*stem, 2], max_tokens=10)
    machine.submit("awaits its prefix", [*stem, 3], max_tokens=2)
    machine.submit("overtakes", 3, max_tokens=30)
    machine.step()
    machine.step()
    assert machine.running == ["first", "overtakes"]
    machine.run()
    assert machine.preempted == []


def test_an_arrival_waits_if_it_would_take_the_last_block_from_those_who_grow() -> None:
    machine = Machine(blocks=10, block_size=4, max_model_len=40, max_step_tokens=40, prefix_caching=False)
    machine.submit("running", 15, max_tokens=9)
    machine.step()
    machine.submit("large", 24, max_tokens=1)
    machine.step()
    assert machine.waiting == ["large"], "six blocks are free, and it needs them all"
    machine.run()
    assert machine.preempted == []


def test_choices_not_yet_started_wait_for_their_preempted_first_one() -> None:
    machine = Machine(max_running=1, max_step_tokens=16, prefix_caching=False)
    machine.submit("a", 9, n=2, max_tokens=4, priority=1)
    machine.step()
    machine.submit("better", 3, max_tokens=2)
    machine.step()
    assert machine.preempted == ["a"]
    machine.run()


def test_an_aged_request_is_not_preempted_by_a_better_arrival() -> None:
    machine = Machine(max_running=1, ageing_seconds=1.0)
    machine.submit("low", 3, max_tokens=20, priority=1)
    machine.step()
    machine.now += 2.0
    machine.submit("high", 3, max_tokens=3)
    machine.run()
    assert machine.preempted == []


def test_cancelling_a_preempted_request_ends_it_once() -> None:
    machine = crowded()
    for name in "abc":
        machine.submit(name, 9, max_tokens=30)
    while not machine.preempted:
        machine.step()
    machine.cancel("c")
    machine.run()
    assert machine.ends["c", 0] == "cancelled"


def test_the_first_in_order_advances_in_every_step_whatever_the_pressure() -> None:
    machine = Machine(blocks=8, block_size=2, max_model_len=16, max_running=4, max_step_tokens=8)
    for number in range(12):
        machine.submit(str(number), 1 + 5 * number % 11, n=1 + number % 3)
    while machine.scheduler.has_work:
        everyone = [*machine.scheduler.running, *machine.scheduler.waiting]
        first = min(everyone, key=lambda sequence: sequence.rank)
        plan = machine.step()
        assert any(grant.sequence is first for grant in plan.grants)
    machine.check_outputs()


@pytest.mark.parametrize("overlap", [False, True])
def test_each_sequence_knows_when_it_first_ran_and_how_often_it_was_set_back(overlap: bool) -> None:
    machine = crowded(prefix_caching=False, overlap=overlap)
    first: dict[str, float] = {}
    seen = set()
    for name in "abcd":
        machine.submit(name, 9, max_tokens=30)
    while machine.has_work:
        now, plan = machine.now, machine.step()
        for grant in plan.grants:
            seen.add(grant.sequence)
            first.setdefault(grant.sequence.request.id, now)
    assert machine.preempted
    assert sum(sequence.preemptions for sequence in seen) == machine.scheduler.preemptions
    assert {sequence.request.id: sequence.scheduled for sequence in seen} == first
    assert len(set(first.values())) > 1, "not all of them fitted at once"
