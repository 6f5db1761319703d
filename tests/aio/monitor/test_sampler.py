"""What is checked: no more than the share, the day's money and the backlog allow."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.aio.monitor import Sample, Sampler
from penstock.errors import ConfigError

DAY = 86_400.0
NOON = 20_000 * DAY + DAY / 2
EVENING = 20_001 * DAY - 1


def test_a_share_of_the_configured_tiers_is_taken() -> None:
    sampler = Sampler(0.05, 10**12, ["small"], backlog=10**6)
    rng = random.Random(0)
    taken = [sampler.take("small", draw=rng.random(), cost=1, now=NOON) for _ in range(10_000)]
    assert 400 < sum(sample is not None for sample in taken) < 600
    assert sampler.take("large", draw=0.0, cost=1, now=NOON) is None


def test_what_is_to_be_seen_sooner_is_taken_more_often() -> None:
    sampler = Sampler(0.05, 10**12, ["small"])
    assert sampler.take("small", draw=0.3, cost=1, now=NOON) is None
    assert sampler.take("small", draw=0.3, cost=1, now=NOON, factor=10.0) is not None


@settings(max_examples=100)
@given(
    budget=st.integers(0, 1000),
    steps=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.booleans(), st.floats(0, 3 * DAY))),
)
def test_reserved_and_spent_never_pass_the_budget_of_a_day(
    budget: int, steps: list[tuple[int, int, bool, float]]
) -> None:
    sampler = Sampler(1.0, budget, ["small"])
    open_samples: list[Sample] = []
    now = NOON
    for estimate, real, settles, pause in steps:
        now += pause
        sample = sampler.take("small", draw=0.0, cost=estimate, now=now)
        if sample:
            open_samples.append(sample)
        if settles and open_samples:
            done = open_samples.pop()
            sampler.settle(done, min(real, done.reserved))
        assert 0 <= sampler.spent(now) <= budget


def test_what_turns_out_to_be_needed_is_reserved_as_far_as_the_money_reaches() -> None:
    sampler = Sampler(1.0, 100, ["small"])
    sample = sampler.take("small", draw=0.0, cost=60, now=EVENING)
    assert sample is not None
    assert sampler.extend(sample, 41, EVENING) is None
    assert sampler.extend(sample, -1, EVENING) is None
    more = sampler.extend(sample, 39, EVENING)
    assert more is not None
    assert more.reserved == sampler.spent(EVENING) == 99
    sampler.settle(more, 70)
    assert (sampler.spent(EVENING), sampler.waiting) == (70, 0)
    # What was taken yesterday has no part in today's money.
    late = sampler.take("small", draw=0.0, cost=1, now=EVENING)
    assert late is not None
    assert sampler.extend(late, 1, EVENING + DAY) is None


def test_other_rules_do_not_make_it_forget_what_is_spent_and_waits() -> None:
    sampler = Sampler(1.0, 100, ["small"])
    sample = sampler.take("small", draw=0.0, cost=60, now=EVENING)
    assert sample is not None
    sampler.configure(1.0, 80, ["other"])
    assert sampler.take("small", draw=0.0, cost=1, now=EVENING) is None
    assert sampler.take("other", draw=0.0, cost=21, now=EVENING) is None
    sampler.settle(sample, 10)
    assert (sampler.spent(EVENING), sampler.waiting) == (10, 0)


def test_what_a_check_did_not_cost_can_be_spent_again_on_the_same_day_only() -> None:
    sampler = Sampler(1.0, 100, ["small"])
    sample = sampler.take("small", draw=0.0, cost=99, now=EVENING)
    assert sample is not None
    assert sampler.take("small", draw=0.0, cost=1, now=EVENING) is None
    assert sampler.over_budget == 1
    sampler.settle(sample, 40)
    assert sampler.spent(EVENING) == 40
    late = sampler.take("small", draw=0.0, cost=59, now=EVENING)
    assert late is not None
    assert sampler.spent(EVENING + DAY) == 0
    sampler.settle(late, 10)
    assert sampler.spent(EVENING + DAY) == 0


def test_money_lasts_through_the_day() -> None:
    sampler = Sampler(1.0, 2400, ["small"], backlog=10**6)
    midnight = 20_000 * DAY
    hours = [
        sum(
            sampler.take("small", draw=0.0, cost=1, now=midnight + 3600 * hour) is not None
            for _ in range(1000)
        )
        for hour in range(24)
    ]
    assert hours[0] == 600
    assert all(70 <= taken <= 80 for taken in hours[1:])


def test_a_price_that_is_no_number_is_not_paid() -> None:
    sampler = Sampler(1.0, 100, ["small"])
    assert sampler.take("small", draw=0.0, cost=math.nan, now=NOON) is None  # type: ignore[arg-type]
    assert sampler.take("small", draw=0.0, cost=-5, now=NOON) is None


def test_a_restart_does_not_fill_the_purse() -> None:
    sampler = Sampler(1.0, 100, ["small"], spent=100)
    assert sampler.take("small", draw=0.0, cost=1, now=EVENING) is None


def test_the_backlog_is_bounded() -> None:
    sampler = Sampler(1.0, 10**12, ["small"], backlog=3)
    taken = [sampler.take("small", draw=0.0, cost=1, now=NOON) for _ in range(5)]
    assert [sample is not None for sample in taken] == [True] * 3 + [False] * 2
    assert sampler.over_backlog == 2
    assert taken[0] is not None
    sampler.settle(taken[0], 0)
    assert sampler.take("small", draw=0.0, cost=1, now=NOON) is not None


@pytest.mark.parametrize(("share", "budget"), [(1.5, 1), (-0.1, 1), (math.nan, 1), (0.1, -1)])
def test_nonsense_is_refused(share: float, budget: int) -> None:
    with pytest.raises(ConfigError):
        Sampler(share, budget, ["small"])
