"""The price of a million tokens."""

from __future__ import annotations

import pytest

from penstock.bench.cost import per_million


def test_a_million_tokens_cost_the_hours_they_take() -> None:
    assert per_million(3.6, 1000.0) == pytest.approx(1.0)  # 1000 s, of which each costs 0.001


def test_no_tokens_have_no_price() -> None:
    assert per_million(3.6, 0.0) is None
