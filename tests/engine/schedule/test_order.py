"""Who comes first: arrival, priority, ageing; and the optional window that groups arrivals."""

from __future__ import annotations

from tests.engine.schedule.machine import STEP_SECONDS, Machine


def order_of_starts(machine: Machine) -> list[str]:
    return [s.request.id for plan in machine.plans for s in plan.admitted]


def test_equals_are_served_in_order_of_arrival() -> None:
    machine = Machine(max_running=1)
    for name in "abcd":
        machine.submit(name, 2, max_tokens=2)
    machine.run()
    assert order_of_starts(machine) == ["a", "b", "c", "d"]


def test_a_lower_priority_number_is_served_earlier() -> None:
    machine = Machine(max_running=1)
    machine.submit("running", 2, max_tokens=3, priority=-9)
    machine.step()
    machine.submit("low", 2, max_tokens=2, priority=5)
    machine.submit("middle", 2, max_tokens=2)
    machine.submit("high", 2, max_tokens=2, priority=-5)
    machine.run()
    assert order_of_starts(machine) == ["running", "high", "middle", "low"]


def waits_behind(machine: Machine, *, seconds: float, levels: int) -> list[str]:
    """The order in which an old low-priority request and a new one, `levels` better, are started."""
    machine.submit("running", 2, max_tokens=2, priority=-100)
    machine.step()
    machine.submit("old", 2, max_tokens=1, priority=levels)
    machine.now += seconds
    machine.submit("new", 2, max_tokens=1)
    machine.run()
    return order_of_starts(machine)[1:]


def test_waiting_makes_up_for_priority_at_one_level_per_ageing_period() -> None:
    for levels in (1, 3):
        early = Machine(max_running=1, ageing_seconds=10.0)
        assert waits_behind(early, seconds=10.0 * levels - 1, levels=levels) == ["new", "old"]
        late = Machine(max_running=1, ageing_seconds=10.0)
        assert waits_behind(late, seconds=10.0 * levels + 1, levels=levels) == ["old", "new"]


def test_a_stream_of_better_requests_cannot_starve_a_worse_one() -> None:
    machine = Machine(max_running=1, ageing_seconds=0.5)
    machine.submit("worst", 2, max_tokens=1, priority=3)
    for number in range(400):
        machine.submit(f"better {number}", 2, max_tokens=1)
        machine.step()
        if ("worst", 0) in machine.ends:
            break
    waited = machine.now - 100.0
    assert ("worst", 0) in machine.ends
    assert waited <= 3 * 0.5 + 1.0
    machine.run()


def test_a_better_prompt_has_its_step_to_itself() -> None:
    machine = Machine(max_running=4, max_step_tokens=8)
    machine.submit("answering", 2, max_tokens=20)
    machine.step()
    machine.submit("long", 100, max_tokens=1)
    machine.step()
    machine.submit("short", 8, max_tokens=20, priority=-5)
    assert machine.granted(machine.step()) == {"short": 8}
    # It answers now, and what is less urgent goes on beside it.
    assert machine.granted(machine.step()) == {"short": 1, "answering": 1, "long": 6}
    machine.run()


def test_equals_of_a_better_prompt_go_on_beside_it() -> None:
    machine = Machine(max_running=4, max_step_tokens=8)
    machine.submit("low", 2, max_tokens=20, priority=5)
    machine.submit("equal", 2, max_tokens=20, priority=-5)
    machine.step()
    machine.submit("better", 4, max_tokens=1, priority=-5)
    assert machine.granted(machine.step()) == {"equal": 1, "better": 4}
    machine.run()


def test_who_has_waited_for_long_enough_is_not_held_up_by_better_prompts() -> None:
    machine = Machine(max_running=4, max_step_tokens=8, ageing_seconds=1.0)
    machine.submit("old", 2, max_tokens=50, priority=3)
    machine.step()
    machine.now += 4.0
    machine.submit("new", 4, max_tokens=1, priority=0)
    assert machine.granted(machine.step()) == {"old": 1, "new": 4}
    machine.run()


def test_prompts_that_keep_coming_do_not_stop_a_lower_answer_for_ever() -> None:
    machine = Machine(max_running=4, max_step_tokens=8, ageing_seconds=1.0)
    machine.submit("low", 2, max_tokens=3, priority=3)
    steps = 0
    while ("low", 0) not in machine.ends:
        machine.submit(f"high {steps}", 8, max_tokens=1)
        machine.step()
        steps += 1
        assert machine.now - 100.0 < 3 * 1.0 + 2.0, "it never got its turn"
    machine.run()


def test_an_equal_request_waits_for_the_budget_behind_the_chunks_of_an_earlier_one() -> None:
    machine = Machine(max_running=4, max_step_tokens=8)
    machine.submit("long", 22, max_tokens=1)
    machine.step()
    machine.submit("short", 2, max_tokens=20)
    assert machine.granted(machine.step()) == {"long": 8}
    assert machine.granted(machine.step()) == {"long": 6, "short": 2}
    machine.run()


def test_a_better_request_does_not_wait_for_a_prefix_that_a_worse_one_computes() -> None:
    machine = Machine(max_running=8, max_step_tokens=8, blocks=400, max_model_len=400, ageing_seconds=1000.0)
    stem = [1] * 40
    machine.submit("low", [*stem, 2], max_tokens=1, priority=9)
    machine.step()
    machine.submit("high", [*stem, 3], max_tokens=1, priority=-9)
    for number in range(6):
        machine.submit(f"middle {number}", 60, max_tokens=1)
    while ("high", 0) not in machine.ends:
        assert "high" in machine.granted(machine.step()), "the middling ones took its turn"
    machine.run()


def test_nobody_overtakes_a_large_request_that_waits_for_memory() -> None:
    machine = Machine(blocks=10, block_size=4, max_model_len=40, prefix_caching=False)
    machine.submit("running", 16, max_tokens=8)
    machine.step()
    machine.submit("large", 30, max_tokens=2)
    machine.submit("small", 2, max_tokens=1)
    machine.run()
    assert order_of_starts(machine) == ["running", "large", "small"]


def test_without_a_window_an_arrival_starts_at_once() -> None:
    machine = Machine()
    machine.submit("a", 3, max_tokens=1)
    assert machine.granted(machine.step()) == {"a": 3}


def test_the_window_groups_arrivals_and_says_when_to_come_back() -> None:
    machine = Machine(arrival_window=0.05)
    began = machine.now
    machine.submit("a", 3, max_tokens=1)
    plan = machine.step()
    assert plan.grants == []
    assert plan.wake_at == began + 0.05
    machine.submit("b", 3, max_tokens=1)
    assert machine.step().wake_at == began + 0.05, "a second arrival does not prolong the window"
    machine.now = began + 0.05
    assert machine.granted(machine.step()) == {"a": 3, "b": 3}
    machine.run()


def test_the_window_does_not_hold_up_what_runs() -> None:
    machine = Machine(arrival_window=0.05)
    machine.submit("a", 3, max_tokens=30)
    machine.now += 0.05
    machine.step()
    machine.submit("b", 3, max_tokens=1)
    began, started = machine.now, None
    while started is None:
        granted = machine.granted(machine.step())
        assert granted["a"] == 1
        if "b" in granted:
            started = machine.now - STEP_SECONDS
    assert 0.05 <= started - began < 0.05 + 2 * STEP_SECONDS
    machine.run()


def test_the_window_closes_when_all_slots_would_be_taken() -> None:
    machine = Machine(arrival_window=0.05, max_running=2)
    machine.submit("a", 3, max_tokens=1)
    assert machine.step().grants == []
    machine.submit("b", 3, max_tokens=1)
    assert machine.granted(machine.step()) == {"a": 3, "b": 3}


def test_the_window_closes_at_once_for_a_full_house() -> None:
    machine = Machine(arrival_window=0.05, max_running=1)
    machine.submit("a", 3, max_tokens=10)
    machine.step()
    machine.submit("b", 3, max_tokens=1)
    machine.run()
    assert machine.now - 100.0 < 0.5


def test_a_cancelled_arrival_leaves_nothing_to_wake_up_for() -> None:
    machine = Machine(arrival_window=0.05)
    machine.submit("a", 3, max_tokens=1)
    machine.cancel("a")
    plan = machine.step()
    assert plan.wake_at is None
    assert not machine.scheduler.has_work
