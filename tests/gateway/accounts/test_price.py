"""Money: exact to the picodollar, and deaf to numbers that are none."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import PriceConfig
from penstock.errors import ConfigError
from penstock.gateway.accounts.price import DOLLAR, FREE, Price, budget, shown

NUMBERLESS = [float("nan"), float("inf"), float("-inf"), -1.0, -1e-300, 1e13, 1e308, "much", None]


def test_prices_are_dollars_for_a_million_tokens() -> None:
    price = Price.of(PriceConfig(input=0.25, cached_input=0.025, output=2, request=0.001))
    assert price == Price(250_000, 25_000, 2_000_000, DOLLAR // 1000)
    million = 10**6
    assert price.cost(million, 0, 0) == DOLLAR // 4 + price.request
    assert price.cost(million, million, 0) == DOLLAR // 40 + price.request
    assert price.cost(0, 0, million) == 2 * DOLLAR + price.request


def test_cached_tokens_cost_as_others_unless_they_have_a_price() -> None:
    assert Price.of(PriceConfig(input=3)).cached_input == 3_000_000
    assert Price.of(PriceConfig(input=3, cached_input=0)).cached_input == 0


def test_a_model_without_a_price_is_free() -> None:
    assert Price.of(None) == FREE
    assert FREE.cost(10**9, 5, 10**9) == 0


@given(st.decimals(0, 1000, places=6))
def test_what_six_decimals_can_say_is_kept_exactly(dollars: object) -> None:
    exact = Fraction(str(dollars)) * 10**6
    assert Price.of(PriceConfig(input=float(str(dollars)))).input == exact


def test_a_float_s_last_digits_do_not_matter() -> None:
    assert Price.of(PriceConfig(input=7.5e-08 * 1e6)).input == 75_000


@pytest.mark.parametrize("value", NUMBERLESS)
@pytest.mark.parametrize("name", ["input", "cached_input", "output", "request"])
def test_what_is_no_price_is_refused(name: str, value: float) -> None:
    if name == "cached_input" and value is None:
        return
    with pytest.raises(ConfigError, match=rf"price\.{name} must be an amount of US dollars"):
        Price.of(PriceConfig(**{name: value}))


@pytest.mark.parametrize("value", NUMBERLESS)
def test_what_is_no_budget_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="monthly_budget must be"):
        budget(value)


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.builds(Price, *[st.integers(0, 10**9)] * 4),
)
def test_no_answer_costs_more_than_the_most(prompt: int, cached: int, output: int, price: Price) -> None:
    assert 0 <= price.cost(prompt, min(cached, prompt), output) <= price.most(prompt, output)


@pytest.mark.parametrize(
    ("picodollars", "text"),
    [
        (0, "$0.00"),
        (1, "$0.000000000001"),
        (DOLLAR // 4, "$0.25"),
        (1234 * DOLLAR + DOLLAR // 2, "$1,234.50"),
    ],
)
def test_money_is_shown_with_all_its_digits(picodollars: int, text: str) -> None:
    assert shown(picodollars) == text
