"""Why a request was slow: what each cause looks like, and that no second is lost or counted twice."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.observe.record import Phase, PhaseName, RequestRecord
from penstock.observe.slow import Median, Usual, causes, parts

Step = tuple[PhaseName, float] | tuple[PhaseName, float, str]


def record(*steps: Step, **fields: Any) -> RequestRecord:
    """One that arrived at 100, with these phases one after the other."""
    made = RequestRecord("r", "createChatCompletion", 100.0, 0.0, **{"choices": 1, **fields})
    now = 100.0
    for name, seconds, *detail in steps:
        made.phases.append(Phase(name, now, now + seconds, *detail))
        now += seconds
    made.ended = now
    return made


def attempt(made: RequestRecord, *steps: Step, failed: bool = False, rest: float = 0.0) -> RequestRecord:
    """With one more try, in which these were."""
    start = now = made.ended
    inside = []
    for name, seconds, *detail in steps:
        inside.append(Phase(name, now, now + seconds, *detail))
        if name == "prefill":
            made.first_token = now + seconds
        now += seconds
    made.last_token, made.ended = now, now + rest
    made.phases += [Phase("attempt", start, made.ended, "replica", failed), *inside]
    return made


def usual(tpot: float = 0.01, cached: float = 0.0) -> Usual:
    known = Usual(cached=cached)
    known.tpot.add(tpot)
    return known


def named(made: RequestRecord, known: Usual | None = None, until: float | None = None) -> list[str]:
    return list(causes(made, known or usual(), until or made.ended))


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (("admission", 2.0), "slow admission"),
        (("cache", 2.0, "miss"), "slow cache"),
        (("route", 2.0, "expert"), "slow route"),
        (("queue", 2.0), "queued"),
    ],
)
def test_what_comes_before_a_replica_is_named_by_its_phase(step: Step, cause: str) -> None:
    made = attempt(record(("admission", 0.001), step), ("prefill", 0.1), ("decode", 0.2))
    assert named(made) == [cause]


def test_waiting_in_the_engine_is_waiting() -> None:
    made = attempt(record(("queue", 0.4)), ("queue", 1.0, "engine"), ("prefill", 0.1))
    assert causes(made, usual(), made.first_token) == {"queued": pytest.approx(1.4)}


def test_a_long_prompt_is_a_long_prefill_and_one_that_is_usually_cached_a_cold_cache() -> None:
    made = attempt(record(prompt_tokens=9000, cached_tokens=100), ("prefill", 3.0), ("decode", 0.1))
    assert named(made, usual(cached=0.0)) == ["long prefill"]
    assert named(made, usual(cached=0.7)) == ["cold cache"]


@pytest.mark.parametrize(("cached", "cause"), [(3000, "cold cache"), (4000, "long prefill")])
def test_less_than_half_of_what_is_usually_cached_is_a_cold_cache(cached: int, cause: str) -> None:
    made = attempt(record(prompt_tokens=9000, cached_tokens=cached), ("prefill", 3.0), ("decode", 0.1))
    assert named(made, usual(cached=0.7)) == [cause]
    made.cached_tokens = 6000
    assert named(made, usual(cached=0.7)) == ["long prefill"], "it found what such prompts find"


def test_what_another_server_did_before_its_first_token_is_its_own_secret() -> None:
    made = attempt(record(prompt_tokens=10), ("prefill", 3.0, "upstream"), ("decode", 0.1))
    assert named(made) == ["slow replica"]
    assert named(attempt(record(), rest=3.0)) == ["slow replica"], "it told nothing at all"


def test_tokens_that_take_longer_than_usual_are_a_slow_decode_and_many_a_long_answer() -> None:
    made = attempt(record(completion_tokens=101), ("prefill", 0.1), ("decode", 10.0))
    assert causes(made, usual(tpot=0.01), made.ended) == {"slow decode": pytest.approx(9.0)}
    assert named(made, usual(tpot=0.1)) == ["long answer"]
    assert named(made, usual(tpot=0.05)) == ["slow decode", "long answer"]
    assert named(made, usual(tpot=0.08)) == ["slow decode", "long answer"], "what was asked for is named last"
    assert named(made, Usual()) == ["long answer"], "what is usual is not known yet"
    made.choices, made.completion_tokens = 4, 404
    assert causes(made, usual(tpot=0.01), made.ended) == {"slow decode": pytest.approx(9.0)}, "side by side"


def test_being_set_back_explains_tokens_that_took_longer() -> None:
    made = attempt(record(completion_tokens=101, preemptions=1), ("prefill", 0.1), ("decode", 10.0))
    assert causes(made, usual(tpot=0.01), made.ended) == {"preempted": pytest.approx(9.0)}
    assert named(made, Usual()) == ["preempted"]


def test_being_set_back_before_the_first_token_explains_a_long_prefill() -> None:
    made = attempt(record(preemptions=1, preempted_early=1), ("prefill", 5.0), ("decode", 0.1))
    assert named(made, until=made.first_token) == ["preempted"]


def test_a_client_that_does_not_take_its_answer_is_not_a_slow_decode() -> None:
    made = attempt(record(completion_tokens=11, blocked=4.5), ("prefill", 0.1), ("decode", 3.0), rest=2.0)
    assert causes(made, usual(), made.ended) == {"slow client": pytest.approx(4.5)}


def test_failed_tries_and_the_pauses_after_them_are_retries() -> None:
    made = attempt(record(("queue", 0.1), retries=1), failed=True, rest=2.0)
    made.ended += 0.5
    attempt(made, ("prefill", 0.2), ("decode", 0.1))
    assert causes(made, usual(), made.ended) == {"retried": pytest.approx(2.5)}


def test_the_last_try_is_explained_by_itself_even_if_it_failed() -> None:
    made = attempt(record(), ("queue", 30.0, "engine"), failed=True)
    assert named(made) == ["queued"]


def test_an_answer_that_was_taken_back_is_a_second_look() -> None:
    made = attempt(record(escalations=1), ("prefill", 0.1), ("decode", 2.0))
    attempt(made, ("prefill", 0.2), ("decode", 0.1))
    assert named(made) == ["second look"]


def test_time_that_nothing_explains_is_the_gateways() -> None:
    made = attempt(record(), ("prefill", 0.1))
    made.ended += 2.0
    assert named(made) == ["busy gateway"]


def test_several_causes_are_named_from_the_longest_on() -> None:
    made = attempt(record(("queue", 1.0), ("admission", 0.1)), ("prefill", 3.0), ("decode", 0.4))
    assert named(made) == ["long prefill", "queued"]


def test_a_slow_first_token_is_not_explained_by_what_came_after_it() -> None:
    made = attempt(record(("queue", 1.0), completion_tokens=2), ("prefill", 0.1), ("decode", 60.0))
    assert named(made, until=made.first_token) == ["queued"]
    assert named(made) == ["slow decode"]


def test_a_request_that_was_refused_in_the_queue_was_queued() -> None:
    assert named(record(("admission", 0.01), ("queue", 30.0))) == ["queued"]


def test_parts_add_up_whatever_happened() -> None:
    draw = random.Random(8)
    for _ in range(500):
        made = record(
            ("admission", draw.random()),
            ("cache", draw.random(), "miss"),
            retries=draw.randrange(2),
            preemptions=draw.randrange(2),
            blocked=draw.choice([0.0, draw.random() * 3]),
            completion_tokens=draw.randrange(100),
            prompt_tokens=draw.randrange(100),
        )
        for number in range(draw.randrange(4)):
            made.ended += draw.choice([0.0, draw.random()])
            made.phases.append(Phase("queue", made.ended, made.ended + 0.1))
            made.ended += 0.1
            steps: list[Step] = [
                ("queue", draw.random(), "engine"),
                ("prefill", 0.3),
                ("decode", draw.random()),
            ]
            attempt(made, *steps[: draw.randrange(4)], failed=bool(number), rest=draw.random())
        until = made.arrived + draw.random() * made.seconds
        found = parts(made, usual(), until)
        assert sum(found.values()) == pytest.approx(until - made.arrived)
        assert min(found.values()) >= 0.0


def test_a_median_finds_the_middle_and_follows_it() -> None:
    draw, median = random.Random(1), Median()
    for _ in range(2000):
        median.add(draw.lognormvariate(0.0, 1.0))
    assert median.value == pytest.approx(1.0, rel=0.2)
    for _ in range(500):
        median.add(draw.lognormvariate(2.0, 1.0))
    assert median.value == pytest.approx(7.4, rel=0.3)


def test_a_median_is_not_stuck_at_nothing() -> None:
    median = Median()
    for value in (0.0, 0.0, 3.0):
        median.add(value)
    assert median.value == 3.0
