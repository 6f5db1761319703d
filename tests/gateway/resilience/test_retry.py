"""How often a request may be tried again, and after which pause."""

from __future__ import annotations

import pytest

from penstock.gateway.resilience import RetryBudget, pause
from penstock.gateway.resilience.retry import FIRST, MOST


def spent(budget: RetryBudget) -> int:
    count = 0
    while budget.spend():
        count += 1
    return count


def test_retries_are_a_share_of_requests_beyond_the_first_few() -> None:
    budget = RetryBudget(0.2)
    assert spent(budget) == FIRST
    for _ in range(1000):
        budget.earn()
    assert spent(budget) == pytest.approx(200, abs=1)


def test_what_is_saved_up_has_a_bound() -> None:
    budget = RetryBudget(0.2)
    for _ in range(100_000):
        budget.earn()
    assert spent(budget) == MOST


def test_a_share_of_nothing_allows_no_retry() -> None:
    budget = RetryBudget(0.0)
    budget.earn()
    assert not budget.spend()


def test_the_bound_of_the_pause_doubles_up_to_a_limit_and_all_of_it_is_drawn_from() -> None:
    assert [pause(attempt, 0.05, 0.3, 1.0) for attempt in (1, 2, 3, 4, 50)] == [0.05, 0.1, 0.2, 0.3, 0.3]
    assert pause(3, 0.05, 0.3, 0.0) == 0.0
    assert pause(3, 0.05, 0.3, 0.5) == pytest.approx(0.1)
