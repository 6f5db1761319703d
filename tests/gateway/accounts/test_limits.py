"""Whether a request is within its limits: pure, in whole numbers, on a clock that only goes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import TenantConfig
from penstock.errors import ConfigError
from penstock.gateway.accounts.limits import (
    CONCURRENCY,
    QUOTA,
    RATE,
    SECOND,
    TOKENS,
    UNIT,
    Limits,
    Refusal,
    Standing,
    correct_tokens,
    drain,
    refusal,
    release,
    take,
)

MONTH_LEFT = 1234 * SECOND


def ask(standing: Standing, limits: Limits, at: int, tokens: int = 0, cost: int = 0) -> Refusal | None:
    drain(standing, limits, at)
    why = refusal(standing, limits, tokens, cost, lambda: MONTH_LEFT)
    if why is None:
        take(standing, limits, "worker", tokens, cost)
    return why


def test_a_minute_s_requests_may_come_at_once_and_then_one_after_another() -> None:
    standing, limits = Standing(), Limits(requests=60)
    assert [ask(standing, limits, 0) for _ in range(60)] == [None] * 60
    why = ask(standing, limits, 0)
    assert why is not None
    assert (why.code, why.wait) == (RATE, 1 * SECOND)
    assert ask(standing, limits, SECOND) is None
    assert ask(standing, limits, SECOND) is not None
    assert [ask(standing, limits, 61 * SECOND) for _ in range(60)] == [None] * 60


@settings(max_examples=200)
@given(st.integers(1, 100_000), st.lists(st.integers(0, 90 * SECOND), min_size=1, max_size=40))
def test_who_waits_as_long_as_told_passes_and_who_waits_less_does_not(limit: int, pauses: list[int]) -> None:
    standing, limits = Standing(), Limits(requests=min(limit, 7), tokens=limit)
    tokens = max(1, limit // 3)
    now = 0
    for pause in pauses:
        now += pause
        why = ask(standing, limits, now, tokens)
        if why is not None:
            assert why.wait is not None
            assert why.wait > 0
            if why.code == TOKENS:  # the only reason, or the longest to pass first
                early = copy_of(standing)
                assert ask(early, limits, now + why.wait - 1, tokens) is not None
            drain(standing, limits, now + why.wait)
            after = refusal(standing, limits, tokens, 0, lambda: MONTH_LEFT)
            assert after is None or after.code != why.code
            now += why.wait


def copy_of(standing: Standing) -> Standing:
    return Standing(standing.at, standing.requests, standing.tokens, shares=dict(standing.shares))


@settings(max_examples=200)
@given(
    st.integers(1, 1000),
    st.lists(
        st.tuples(st.integers(0, 20 * SECOND), st.integers(0, 1200), st.integers(-500, 500)), max_size=60
    ),
)
def test_in_no_time_more_passes_than_a_bucket_and_what_ran_off(
    limit: int, steps: list[tuple[int, int, int]]
) -> None:
    standing, limits = Standing(), Limits(tokens=limit)
    now = used = 0
    for pause, tokens, correction in steps:
        now += pause
        if ask(standing, limits, now, tokens) is None:
            used += tokens
            actual = max(0, tokens + min(0, correction))  # settled at once, with less
            correct_tokens(standing, limits, actual - tokens)
            used += actual - tokens
        assert used * UNIT <= limit * UNIT + limit * now


def test_numbers_stay_exact_over_any_number_of_requests() -> None:
    standing, limits = Standing(), Limits(requests=7)
    passed = sum(ask(standing, limits, now) is None for now in range(0, 600 * SECOND, 100_003))
    assert passed == 7 + 7 * 600 // 60 - 1  # the last would pass at the 600th second, which is not asked for


def test_a_clock_that_goes_back_neither_opens_nor_shuts_the_door() -> None:
    standing, limits = Standing(), Limits(requests=2)
    start = 10**6 * SECOND
    assert ask(standing, limits, start) is None
    assert ask(standing, limits, start - SECOND) is None
    assert ask(standing, limits, start - SECOND) is not None
    assert ask(standing, limits, start + 29 * SECOND) is not None
    assert ask(standing, limits, start + 31 * SECOND) is None
    # Another clock altogether: its time is taken from there on.
    assert ask(standing, limits, 5 * SECOND) is not None
    assert ask(standing, limits, 35 * SECOND) is None


def test_tokens_that_were_not_needed_are_given_back() -> None:
    standing, limits = Standing(), Limits(tokens=1000)
    assert ask(standing, limits, 0, 900) is None
    assert ask(standing, limits, 0, 200) is not None
    correct_tokens(standing, limits, 100 - 900)
    assert ask(standing, limits, 0, 900) is None
    correct_tokens(standing, limits, +500)  # more than was thought
    why = ask(standing, limits, 0, 100)
    assert why is not None
    assert why.wait == 36 * SECOND  # 600 too many, of 1,000 a minute


def test_a_request_larger_than_the_limit_never_passes_and_is_told_so() -> None:
    why = ask(Standing(), Limits(tokens=1000), 0, 1001)
    assert why is not None
    assert (why.code, why.wait) == (TOKENS, None)
    assert ask(Standing(), Limits(tokens=1000), 0, 1000) is None


def test_only_so_many_run_at_a_time_over_all_workers() -> None:
    standing, limits = Standing(), Limits(concurrent=3)
    for worker in ("a", "b", "a"):
        assert refusal(standing, limits, 0, 0, lambda: 0) is None
        take(standing, limits, worker, 0, 0)
    why = refusal(standing, limits, 0, 0, lambda: 0)
    assert why is not None
    assert why.code == CONCURRENCY
    release(standing, "b", 1, 0)
    assert refusal(standing, limits, 0, 0, lambda: 0) is None
    release(standing, "b", 1, 0)  # of one that is not there
    release(standing, "a", 2, 0)
    assert standing.running == 0
    assert standing.shares == {}


def test_the_budget_counts_what_is_spent_and_what_is_held() -> None:
    standing, limits = Standing(month="2026-01", spent=50), Limits(budget=100)
    assert ask(standing, limits, 0, cost=30) is None
    held_up = ask(standing, limits, 0, cost=21)
    assert held_up is not None
    assert (held_up.code, held_up.wait) == (QUOTA, SECOND)  # what is held may come back soon
    assert ask(standing, limits, 0, cost=20) is None
    release(standing, "worker", 2, 50)
    standing.spent += 50
    spent = ask(standing, limits, 0, cost=1)
    assert spent is not None
    assert (spent.code, spent.wait) == (QUOTA, MONTH_LEFT)
    too_dear = ask(standing, limits, 0, cost=101)
    assert too_dear is not None
    assert too_dear.wait is None


def test_what_is_free_passes_whatever_has_been_spent() -> None:
    assert ask(Standing(month="2026-01", spent=500), Limits(budget=100), 0, cost=0) is None


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "concurrent", "monthly_budget"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, "many"])
def test_limits_that_are_no_numbers_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        Limits.of(TenantConfig(name="acme", **{name: value}))


@pytest.mark.parametrize("value", [True, 1.5, 10.0])
def test_counts_are_whole_numbers(value: Any) -> None:
    with pytest.raises(ConfigError, match="whole number"):
        Limits.of(TenantConfig(name="acme", concurrent=value))


def test_a_limit_of_nothing_lets_nothing_pass() -> None:
    for limits in (Limits(requests=0), Limits(tokens=0), Limits(concurrent=0), Limits(budget=0)):
        for at in (0, 10**12):
            assert ask(Standing(), limits, at, 1, 1) is not None


def test_huge_numbers_are_only_numbers() -> None:
    huge = 10**30
    standing, limits = Standing(), Limits(huge, huge, huge, huge)
    assert ask(standing, limits, 0, huge - 1, huge - 1) is None
    assert ask(standing, limits, 0, 2, 2) is not None
    assert ask(standing, limits, 0, 1, 1) is None


def test_the_parts_of_all_workers_are_no_more_than_the_whole_but_for_one_request_each() -> None:
    assert Limits(10, 11, None, 7).part(3) == Limits(3, 3, None, 2)
    assert Limits(2, 2, 1, 2).part(3) == Limits(1, 0, 1, 0)
