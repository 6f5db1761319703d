"""Sums of finished requests by second: what they come to over a window, whatever a clock does."""

from __future__ import annotations

import math
import random
import time

import pytest

from penstock.observe.objectives import Promise
from penstock.observe.record import Outcome, RequestRecord
from penstock.observe.window import WINDOWS, Window, bucket, quantile, total

PROMISE = Promise(ttft=0.5, tpot=0.05)


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
def window(clock: Clock) -> Window:
    return Window(lambda model: PROMISE, clock)


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
    for seconds in (-1.0, 0.0, 1e-9, 1e12, math.inf):
        assert quantile({bucket(seconds): 1}, 0.5) is not None


def test_a_request_is_in_every_window_until_it_is_too_old(window: Window, clock: Clock) -> None:
    window.finished(record(clock))
    assert window.sums(60) == {}, "the current second is not over"
    passing(window, clock, 1)
    for seconds in WINDOWS:
        passing(window, clock, 11 if seconds > 900 else 0)  # longer ones are summed up less often
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


@pytest.mark.parametrize(
    ("fields", "judged", "bad"),
    [
        ({}, {"errors": 1, "ttft": 1, "tpot": 1}, {"tpot": 1}),
        ({"tokens": 100}, {"errors": 1, "ttft": 1, "tpot": 1}, {}),
        ({"ttft": 0.6, "tokens": 100}, {"errors": 1, "ttft": 1, "tpot": 1}, {"ttft": 1}),
        ({"outcome": "failed", "ttft": None}, {"errors": 1, "ttft": 1}, {"errors": 1, "ttft": 1}),
        ({"outcome": "shed", "ttft": None}, {"errors": 1, "ttft": 1}, {"errors": 1, "ttft": 1}),
        ({"outcome": "rejected", "ttft": None}, {}, {}),
        ({"service_class": "batch", "ttft": 0.9, "tokens": 100}, {"errors": 1}, {}),
    ],
)
def test_requests_are_judged_by_the_objectives(
    window: Window, clock: Clock, fields: dict[str, object], judged: dict[str, int], bad: dict[str, int]
) -> None:
    window.finished(record(clock, **fields))  # type: ignore[arg-type]
    passing(window, clock, 1)
    sums = window.sums(60)["chat"]
    assert (sums.judged, sums.bad) == (judged, bad)


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
    assert {second.waiting for number, second in history.items() if number > 10_000} == {4}


def test_hearing_of_a_request_takes_microseconds(window: Window, clock: Clock) -> None:
    made = record(clock, tokens=100)
    best = math.inf
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(1000):
            window.finished(made)
        best = min(best, time.perf_counter() - began)
    assert best / 1000 < 50e-6
