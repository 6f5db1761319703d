"""Sums of finished requests by second: what they come to over a window, whatever a clock does."""

from __future__ import annotations

import math
import random
import time
from collections import Counter

import pytest

from penstock.observe.record import Outcome, RequestRecord
from penstock.observe.window import WINDOWS, Window, bucket, quantile, total


class Clock:
    def __init__(self) -> None:
        self.now = 10_000.0

    def __call__(self) -> float:
        return self.now


def record(
    clock: Clock,
    *,
    ttft: float | None = 0.1,
    seconds: float = 1.0,
    outcome: Outcome = "ok",
    model: str = "chat",
    tokens: int = 10,
    **fields: object,
) -> RequestRecord:
    made = RequestRecord("id", "createChatCompletion", clock.now - seconds, time.time())
    made.ended = clock.now
    made.served_by, made.outcome, made.tenant = model, outcome, "acme"
    if ttft is not None:
        made.first_token, made.last_token = made.arrived + ttft, clock.now
    made.prompt_tokens, made.completion_tokens = 100, tokens
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def counted() -> Counter[tuple[str, ...]]:
    """What was judged so far."""
    return Counter()


@pytest.fixture
def window(clock: Clock, counted: Counter[tuple[str, ...]]) -> Window:
    return Window(lambda: ("chat", "a", "b"), counted.items, clock)


def passing(window: Window, clock: Clock, seconds: int, waiting: int = 0) -> None:
    for _ in range(seconds):
        clock.now += 1
        window.tick(waiting)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_quantiles_are_within_a_few_percent(share: float) -> None:
    draw = random.Random(7)
    values = sorted(draw.lognormvariate(-1, 1) for _ in range(20_000))
    spread: dict[int, int] = {}
    for value in values:
        spread[bucket(value)] = spread.get(bucket(value), 0) + 1
    exact = values[math.ceil(share * len(values)) - 1]
    assert quantile(spread, share) == pytest.approx(exact, rel=0.03)


def test_of_nothing_there_is_no_quantile_and_any_time_has_a_bucket() -> None:
    assert quantile({}, 0.5) is None
    for seconds in (-1.0, 0.0, 1e-9, 1e12):
        assert quantile({bucket(seconds): 1}, 0.5) is not None


def test_a_request_is_in_every_window_until_it_is_too_old(window: Window, clock: Clock) -> None:
    window.finished(record(clock))
    assert window.sums(60) == {}, "the current second is not over"
    passing(window, clock, 1)
    for seconds in WINDOWS:
        assert window.sums(seconds)["chat"].requests == 1, seconds
    passing(window, clock, 61)
    assert window.sums(60) == {}
    assert window.sums(300)["chat"].requests == 1
    passing(window, clock, 300)
    assert window.sums(300) == {}
    assert window.sums(3600)["chat"].requests == 1


def test_memory_is_bounded_by_time(window: Window, clock: Clock) -> None:
    for _ in range(2000):
        window.finished(record(clock))
        passing(window, clock, 1)
    assert len(window._slots[1]) <= 140
    assert len(window._slots[10]) <= 95
    assert window.sums(60)["chat"].requests == 60
    assert 300 <= window.sums(300)["chat"].requests <= 310
    # Wide slots keep counts alone.
    assert not any(sums.ttft for models in window._slots[60].values() for sums in models.values())


def test_a_clock_that_stands_still_or_leaps_loses_nothing(window: Window, clock: Clock) -> None:
    window.finished(record(clock))
    window.tick(0)
    window.tick(0)
    clock.now += 30  # the loop was held up
    window.finished(record(clock))
    window.tick(0)
    passing(window, clock, 1)
    assert window.sums(60)["chat"].requests == 2
    assert window.sums(300)["chat"].requests == 2


def test_what_was_judged_is_read_off_its_counters(
    window: Window, clock: Clock, counted: Counter[tuple[str, ...]]
) -> None:
    counted["chat", "ttft", "good"] += 3
    counted["chat", "ttft", "bad"] += 2
    passing(window, clock, 1)
    counted["chat", "ttft", "good"] += 5
    passing(window, clock, 1)
    sums = window.sums(3600)["chat"]
    assert (sums.judged, sums.bad) == ({"ttft": 10}, {"ttft": 2})
    passing(window, clock, 62)
    assert window.sums(60) == {}


def test_a_name_that_clients_made_up_counts_under_none(window: Window, clock: Clock) -> None:
    window.finished(record(clock, model=""))
    made = record(clock, model="")
    made.model = "made up"
    window.finished(made)
    made = record(clock, model="")
    made.model = "chat"  # refused before anybody could serve it
    window.finished(made)
    passing(window, clock, 1)
    assert {name: sums.requests for name, sums in window.sums(60).items()} == {"": 2, "chat": 1}


def test_batch_work_is_told_apart_where_it_may_wait(window: Window, clock: Clock) -> None:
    window.finished(record(clock, ttft=0.9, service_class="batch"))
    window.finished(record(clock, ttft=0.1))
    passing(window, clock, 1)
    sums = window.sums(60)["chat"]
    assert sum(sums.ttft.values()) == 2
    assert sums.urgent_ttft == {bucket(0.1): 1}


def test_sums_that_come_and_go_are_those_of_what_is_left(window: Window, clock: Clock) -> None:
    draw = random.Random(3)
    kept: list[tuple[int, RequestRecord]] = []
    for _ in range(1500):
        for _ in range(draw.randrange(3)):
            made = record(clock, ttft=draw.random(), model=draw.choice("ab"), dollars=draw.random())
            kept.append((int(clock.now), made))
            window.finished(made)
        passing(window, clock, draw.choice((1, 1, 1, 7)))
        now = int(clock.now)
        for seconds, width in ((60, 1), (300, 10), (900, 10), (1800, 60), (3600, 60)):
            left = [each for at, each in kept if at // width >= (now - seconds) // width]
            sums = total(window.sums(seconds).values())
            assert sums.requests == len(left)
            assert sums.dollars == pytest.approx(sum(each.dollars for each in left), abs=1e-9)
            assert sum(sums.ttft.values()) == (len(left) if width <= 10 else 0)


def test_what_the_server_asks_of_itself_is_no_traffic(window: Window, clock: Clock) -> None:
    window.finished(record(clock, inside=True))
    passing(window, clock, 1)
    assert window.sums(60) == {}


def test_sums_add_up_over_models_and_seconds(window: Window, clock: Clock) -> None:
    for model in ("a", "b", "a"):
        window.finished(record(clock, model=model, causes=("queued",), dollars=0.5))
        passing(window, clock, 1, waiting=4)
    sums = window.sums(60)
    assert {model: each.requests for model, each in sums.items()} == {"a": 2, "b": 1}
    every = total(sums.values())
    assert every.requests == 3
    assert every.output_tokens == 30
    assert every.dollars == pytest.approx(1.5)
    assert every.causes == {"queued": 3}
    assert sum(every.ttft.values()) == 3
    history = window.history()
    assert sum(second.requests for second in history.values()) == 3
    assert {second.waiting for second in history.values()} == {4}
