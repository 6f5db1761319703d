"""Every accepted request ends exactly once, for the reason its parameters say."""

from __future__ import annotations

import pytest

from penstock.errors import ContextLengthError, InvalidRequestError, QueueFullError
from tests.engine.schedule.machine import Machine, next_token


def outputs_of(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens, 0))
    return tokens[len(prompt) :]


PROMPT = [1, 2, 3]
OUTPUT = outputs_of(PROMPT, 30)  # what the model says if nobody stops it
# A token that comes for the first time at the sixth place, so that the end is known.
LATE = OUTPUT[5]
assert OUTPUT.index(LATE) == 5


def test_max_tokens_ends_with_length() -> None:
    machine = Machine()
    machine.submit("a", PROMPT, max_tokens=4)
    machine.run()
    assert machine.outputs["a", 0] == OUTPUT[:4]
    assert machine.ends == {("a", 0): "length"}


def test_one_token_is_enough() -> None:
    machine = Machine()
    machine.submit("a", [7], max_tokens=1)
    machine.run()
    assert len(machine.plans) == 1


def test_the_context_ends_a_request_without_max_tokens() -> None:
    machine = Machine(max_model_len=12)
    machine.submit("a", PROMPT)
    machine.run()
    assert machine.outputs["a", 0] == OUTPUT[:9]
    assert machine.ends == {("a", 0): "length"}


def test_the_context_ends_a_request_that_asks_for_more() -> None:
    machine = Machine(max_model_len=12)
    machine.submit("a", PROMPT, max_tokens=100)
    machine.run()
    assert len(machine.outputs["a", 0]) == 9


def test_a_request_may_fill_the_whole_memory() -> None:
    machine = Machine(blocks=3, block_size=4, max_model_len=12)
    machine.submit("a", PROMPT)
    machine.submit("b", 11)
    machine.run()


@pytest.mark.parametrize("length", [12, 13, 100])
def test_a_prompt_that_fills_the_context_is_refused_with_the_numbers(length: int) -> None:
    machine = Machine(max_model_len=12)
    with pytest.raises(ContextLengthError, match=rf"{length} tokens.* 12 tokens") as caught:
        machine.submit("a", length)
    assert caught.value.code == "context_length_exceeded"
    assert not machine.scheduler.has_work


def test_an_end_token_stops_and_is_named() -> None:
    machine = Machine()
    machine.submit("a", PROMPT, eos=(LATE,))
    sequence = machine.sequence("a")
    machine.run()
    assert machine.outputs["a", 0] == OUTPUT[:6]
    assert machine.ends == {("a", 0): "stop"}
    assert sequence.stop_token == LATE


def test_a_stop_id_stops_even_when_ends_are_ignored() -> None:
    machine = Machine()
    machine.submit("a", PROMPT, max_tokens=20, eos=(OUTPUT[2],), ignore_eos=True, stop_token_ids=(LATE,))
    machine.run()
    assert machine.outputs["a", 0] == OUTPUT[:6]
    assert machine.ends == {("a", 0): "stop"}


def test_ignored_ends_do_not_stop() -> None:
    machine = Machine()
    machine.submit("a", PROMPT, max_tokens=20, eos=(LATE,), ignore_eos=True)
    machine.run()
    assert machine.outputs["a", 0] == OUTPUT[:20]
    assert machine.ends == {("a", 0): "length"}


@pytest.mark.parametrize(("min_tokens", "length"), [(0, 6), (5, 6), (6, 6), (7, 20)])
def test_no_end_counts_before_min_tokens(min_tokens: int, length: int) -> None:
    machine = Machine()
    machine.submit("a", PROMPT, max_tokens=20, min_tokens=min_tokens, stop_token_ids=(LATE,))
    machine.run()
    expected = next((n for n in range(min_tokens, 21) if n and OUTPUT[n - 1] == LATE), 20)
    assert len(machine.outputs["a", 0]) == expected
    assert (expected == 6) == (length == 6)


def test_an_end_at_the_last_allowed_token_is_a_stop() -> None:
    machine = Machine()
    machine.submit("a", PROMPT, max_tokens=6, eos=(LATE,))
    machine.run()
    assert machine.ends == {("a", 0): "stop"}


def test_a_token_that_could_not_be_drawn_ends_that_request_alone() -> None:
    machine = Machine()
    machine.submit("good", 3, max_tokens=5)
    machine.submit("bad", 3, max_tokens=5)
    plan = machine.scheduler.schedule(machine.now)
    advanced = machine.scheduler.complete(plan, [4, -1])
    assert [(s.request.id, s.finish_reason) for s in advanced] == [("good", None), ("bad", "error")]
    assert machine.running == ["good"]
    machine.scheduler.check()


def test_cancelling_a_waiting_request_ends_it() -> None:
    machine = Machine(max_running=1)
    machine.submit("a", 3, max_tokens=5)
    machine.submit("b", 3, max_tokens=5)
    machine.step()
    machine.cancel("b")
    machine.run()
    assert machine.ends == {("a", 0): "length", ("b", 0): "cancelled"}


def test_cancelling_a_running_request_frees_its_blocks_and_slot_at_once() -> None:
    machine = Machine(max_running=1, prefix_caching=False)
    machine.submit("a", 30, max_tokens=50)
    machine.step()
    assert machine.memory.num_free < 64
    machine.cancel("a")
    assert machine.memory.num_free == 64
    machine.submit("b", 3, max_tokens=5)
    machine.run()


def test_cancelling_what_is_not_there_is_no_error() -> None:
    machine = Machine()
    assert machine.scheduler.cancel("nobody") == []
    machine.submit("a", 3, max_tokens=2)
    assert machine.scheduler.cancel("a", 7) == []
    machine.run()
    assert machine.scheduler.cancel("a") == []


def test_a_full_queue_refuses_with_the_numbers_and_keeps_what_it_has() -> None:
    machine = Machine(max_running=2, max_waiting=3)
    for number in range(5):
        machine.submit(str(number), 3, max_tokens=2)
    with pytest.raises(QueueFullError, match=r"5 are waiting, 1 more would pass max_waiting \(3\)"):
        machine.submit("late", 3)
    machine.step()
    with pytest.raises(QueueFullError, match="3 are waiting, 2 more"):
        machine.submit("late", 3, n=2)
    assert "late" not in machine.scheduler
    machine.run()
    machine.submit("later", 3, max_tokens=1)
    machine.run()


def test_more_choices_than_the_engine_can_ever_hold_are_the_requests_own_fault() -> None:
    machine = Machine(max_running=2, max_waiting=3)
    with pytest.raises(InvalidRequestError, match="n is 6") as caught:
        machine.submit("a", 3, n=6)
    assert caught.value.param == "n"
    machine.submit("b", 3, n=5, max_tokens=2)
    machine.run()


def test_an_id_can_be_used_again_after_its_end() -> None:
    machine = Machine()
    machine.submit("a", 3, max_tokens=2)
    assert "a" in machine.scheduler
    machine.run()
    assert "a" not in machine.scheduler
    machine.ends.clear()
    machine.outputs.clear()
    machine.submit("a", 5, max_tokens=2)
    machine.run()
