"""The encoder's queue under made-up arrivals: nobody is lost, or overtaken without right."""

from __future__ import annotations

import random

import pytest

from penstock.engine.encode.queue import EncodeLimits, EncodeQueue
from penstock.engine.request import Request
from penstock.errors import QueueFullError


def request(name: str, length: int, priority: int = 0) -> Request:
    return Request(id=name, prompt=[1] * length, pooling="mean", priority=priority)


@pytest.mark.parametrize("seed", range(20))
def test_every_accepted_text_is_taken_once_in_order_and_within_the_budget(seed: int) -> None:
    draw = random.Random(seed)
    limits = EncodeLimits(
        max_running=draw.randint(1, 9),
        max_waiting=draw.randint(1, 30),
        max_step_tokens=draw.randint(16, 64),
        ageing_seconds=draw.choice([0.5, 10.0]),
    )
    queue = EncodeQueue(limits)
    waiting: dict[str, tuple[float, int]] = {}  # what must still come: rank and order of arrival
    lengths: dict[str, int] = {}
    accepted, ended = 0, 0
    for number in range(600):
        now = number * 0.1
        kind = draw.random()
        if kind < 0.6:
            name, length = f"text-{number}", draw.randint(1, 16)
            priority = draw.choice([0, 0, 0, -2, 3])
            full = len(waiting) >= limits.max_running + limits.max_waiting
            try:
                queue.submit(request(name, length, priority), now)
            except QueueFullError:
                assert full
                continue
            assert not full
            accepted += 1
            waiting[name], lengths[name] = (now + priority * limits.ageing_seconds, number), length
        elif kind < 0.7 and waiting:
            name = draw.choice(sorted(waiting))
            assert queue.cancel(name)
            assert not queue.cancel(name)
            del waiting[name]
            ended += 1
        else:
            taken = [each.id for each in queue.take()]
            assert taken == sorted(waiting, key=lambda each: waiting[each])[: len(taken)]
            assert bool(taken) == bool(waiting)
            assert len(taken) <= limits.max_running
            assert sum(lengths[each] for each in taken) <= limits.max_step_tokens or len(taken) == 1
            left = sorted(set(waiting) - set(taken), key=lambda each: waiting[each])
            if left and len(taken) < limits.max_running:
                following = sum(lengths[each] for each in (*taken, left[0]))
                assert following > limits.max_step_tokens, "a step is filled as far as the order allows"
            for each in taken:
                del waiting[each]
            ended += len(taken)
        assert len(queue) == len(waiting)
        queue.check()
    while queue.take():
        pass
    assert accepted == ended + len(waiting) > 200


def test_the_first_in_order_is_taken_even_if_it_is_longer_than_a_step() -> None:
    queue = EncodeQueue(EncodeLimits(max_running=4, max_waiting=4, max_step_tokens=8))
    queue.submit(request("long", 20), 0.0)
    queue.submit(request("short", 1), 1.0)
    assert [each.id for each in queue.take()] == ["long"]
    assert [each.id for each in queue.take()] == ["short"]


def test_the_window_stays_open_for_the_first_arrival_only_while_there_is_room() -> None:
    limits = EncodeLimits(max_running=2, max_waiting=4, max_step_tokens=8, arrival_window=0.05)
    queue = EncodeQueue(limits)
    assert queue.wake_at(0.0) is None
    queue.submit(request("one", 3), 1.0)
    assert queue.wake_at(1.0) == 1.05
    assert queue.wake_at(1.06) is None
    queue.submit(request("two", 1), 1.01)
    assert queue.wake_at(1.01) is None, "a step has room for two texts"
    queue.cancel("two")
    queue.submit(request("three", 8), 1.01)
    queue.cancel("one")
    assert queue.wake_at(1.02) is None, "a step has room for eight tokens"
