"""Savings against both ways of not routing, and measured quality with its interval."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.aio.balance import Balance, balance, balances, measured, mixture_cost
from penstock.aio.books import RouteTally

# Two hundred requests: half were answered by each tier.
CHEAP = RouteTally(
    requests=100, cost=100, expert_cost=1000, quality=90_000_000, expert_quality=95_000_000,
    weighed=200, would_cost=200, would_quality=120_000_000,
    classifier_cost=30, cascade_cost=20, monitor_cost=50,
)  # fmt: skip
EXPERT = RouteTally(
    requests=100, by_expert=100, cost=1000, expert_cost=1000, quality=85_000_000, expert_quality=85_000_000,
    weighed=200, would_cost=2000, would_quality=180_000_000,
)  # fmt: skip


def points(*pairs: tuple[int, int]) -> list[tuple[Fraction, Fraction]]:
    return [(Fraction(quality), Fraction(cost)) for quality, cost in pairs]


def test_savings_are_net_of_what_routing_cost() -> None:
    found = balance({"cheap": CHEAP, "expert": EXPERT})
    assert (found.spent, found.always_expert, found.gross) == (1100, 2000, 900)
    assert (found.routing, found.net) == (100, 800)


def test_the_mixture_reaches_the_same_quality_by_lot() -> None:
    """0.875 lies eleven twelfths of the way from 0.6 to 0.9, and so does its cost."""
    found = balance({"cheap": CHEAP, "expert": EXPERT})
    assert found.mixture == 200 + 1800 * 11 // 12
    assert found.net_of_mixture == found.mixture - 1100 - 100


def test_a_tier_above_the_line_between_others_is_not_mixed() -> None:
    assert mixture_cost(points((0, 0), (5, 9), (10, 10)), Fraction(5)) == 5
    assert mixture_cost(points((0, 0), (5, 1), (10, 10)), Fraction(5)) == 1
    assert mixture_cost(points((0, 0), (5, 1), (10, 10)), Fraction(6)) == Fraction(14, 5)


def test_a_dearer_tier_that_is_worse_is_never_needed() -> None:
    assert mixture_cost(points((8, 1), (5, 10)), Fraction(4)) == 1


def test_quality_beyond_every_tier_is_compared_with_the_best() -> None:
    assert mixture_cost(points((5, 1), (8, 10), (8, 12)), Fraction(9)) == 10


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5),
    st.integers(0, 20),
    st.lists(st.integers(0, 5), min_size=5, max_size=5),
)
def test_no_lottery_is_cheaper(pairs: list[tuple[int, int]], quality: int, weights: list[int]) -> None:
    found = mixture_cost(points(*pairs), Fraction(quality))
    total = sum(weights[: len(pairs)])
    if total:
        mixed = [sum(w * pair[part] for w, pair in zip(weights, pairs, strict=False)) for part in (0, 1)]
        if Fraction(mixed[0], total) >= quality:
            assert found <= Fraction(mixed[1], total)


def test_balances_of_tenants_and_days_add_up() -> None:
    days = balances({("a", "1", "cheap"): CHEAP, ("a", "1", "expert"): EXPERT, ("b", "2", "expert"): EXPERT})
    assert list(days) == [("a", "1"), ("b", "2")]
    total = sum(days.values(), Balance())
    assert total.requests == 300
    assert total.mixture == sum(day.mixture for day in days.values())
    assert days["b", "2"].net == 0


def test_nothing_routed_is_nothing_saved() -> None:
    assert balance({}) == Balance()
    assert balance({"cheap": RouteTally(pinned=2, pinned_cost=7)}) == Balance(pinned=2, pinned_cost=7)


def test_measured_quality_is_weighted_by_what_tiers_answered() -> None:
    """The expert is as good as itself; the sample of a tier stands for all that it answered."""
    cheap = RouteTally(requests=300, as_good=80, worse=20)
    found = measured([cheap, RouteTally(requests=100, by_expert=100)])
    assert found is not None
    assert found.share == pytest.approx((300 * 0.8 + 100) / 400)
    assert found.low < found.share < found.high < 1
    assert found.verdicts == 100
    alone = measured([cheap])
    assert alone is not None
    assert found.share - found.low == pytest.approx((alone.share - alone.low) * 300 / 400)


def test_without_verdicts_nothing_is_known() -> None:
    assert measured([RouteTally(requests=10), RouteTally(requests=5, by_expert=5)]) is None


def test_a_tier_without_verdicts_widens_the_interval() -> None:
    checked = RouteTally(requests=100, as_good=90, worse=10)
    one = measured([checked])
    both = measured([checked, RouteTally(requests=100)])
    assert one is not None
    assert both is not None
    assert both.high - both.low > 0.4 > one.high - one.low
