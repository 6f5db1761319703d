"""One token budget a step: decodes first, then prompt chunks."""

from __future__ import annotations

import pytest

from tests.engine.schedule.machine import Machine


def test_a_short_prompt_is_computed_at_once_and_gives_a_token() -> None:
    machine = Machine()
    machine.submit("a", 10, max_tokens=3)
    plan = machine.step()
    assert machine.granted(plan) == {"a": 10}
    assert len(machine.outputs["a", 0]) == 1
    machine.run()
    assert machine.granted(machine.plans[1]) == {"a": 1}


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks() -> None:
    machine = Machine(max_step_tokens=16)
    machine.submit("a", 40, max_tokens=1)
    machine.run()
    assert [plan.num_tokens for plan in machine.plans] == [16, 16, 8]


def test_no_step_passes_the_budget_however_much_is_waiting() -> None:
    machine = Machine(max_running=8, max_step_tokens=16)
    for number in range(30):
        machine.submit(str(number), 3 + 7 * number % 31, max_tokens=5)
    machine.run()
    assert max(plan.num_tokens for plan in machine.plans) == 16


def test_decodes_come_before_prompt_chunks_even_of_better_priority() -> None:
    machine = Machine(max_running=4, max_step_tokens=8)
    machine.submit("stream", 2, max_tokens=20)
    machine.step()
    machine.submit("prompt", 100, max_tokens=1, priority=-5)
    machine.step()
    plan = machine.step()
    assert [grant.sequence.request.id for grant in plan.grants] == ["stream", "prompt"]
    assert machine.granted(plan) == {"stream": 1, "prompt": 7}


def test_an_earlier_prompt_gets_the_budget_before_a_later_one() -> None:
    machine = Machine(max_step_tokens=16)
    machine.submit("first", 20, max_tokens=1)
    machine.submit("second", 20, max_tokens=1)
    assert machine.granted(machine.step()) == {"first": 16}
    assert machine.granted(machine.step()) == {"first": 4, "second": 12}
    assert machine.granted(machine.step()) == {"second": 8}


def test_running_streams_get_a_token_in_every_step_of_a_long_prompt() -> None:
    machine = Machine(max_running=4, max_step_tokens=16, blocks=128)
    for name in ("a", "b", "c"):
        machine.submit(name, 3, max_tokens=40)
    machine.step()
    machine.submit("long", 150, max_tokens=1)
    while machine.sequence("long").computed < 150 - 13:
        plan = machine.step()
        granted = machine.granted(plan)
        assert {name: granted[name] for name in "abc"} == {"a": 1, "b": 1, "c": 1}
        assert granted["long"] == 13
    machine.run()


def test_a_full_house_of_decodes_leaves_a_token_for_the_one_prompt() -> None:
    machine = Machine(max_running=3, max_step_tokens=3)
    machine.submit("a", 1, max_tokens=30)
    machine.submit("b", 1, max_tokens=30)
    machine.submit("prompt", 10, max_tokens=1)
    machine.step()
    for _ in range(9):
        assert machine.granted(machine.step()) == {"a": 1, "b": 1, "prompt": 1}
    machine.run()


def test_no_more_run_at_once_than_there_are_slots() -> None:
    machine = Machine(max_running=3)
    for number in range(10):
        machine.submit(str(number), 2, max_tokens=4)
    while machine.scheduler.has_work:
        machine.step()
        assert len(machine.running) <= 3
    machine.check_outputs()


def test_a_finished_request_makes_room_in_the_next_step() -> None:
    machine = Machine(max_running=1)
    machine.submit("a", 2, max_tokens=1)
    machine.submit("b", 2, max_tokens=1)
    machine.step()
    assert machine.granted(machine.step()) == {"b": 2}


@pytest.mark.parametrize("max_step_tokens", [1, 2, 7, 64])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_the_budget_changes_no_token(max_step_tokens: int, block_size: int) -> None:
    machine = Machine(
        max_running=min(4, max_step_tokens),
        max_step_tokens=max_step_tokens,
        block_size=block_size,
        blocks=200,
    )
    for number in range(6):
        machine.submit(str(number), 5 + 3 * number, max_tokens=6)
    machine.run()
