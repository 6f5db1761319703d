"""Axes say what they are: zero where bars begin, logarithms where they are used."""

from __future__ import annotations

import pytest

from penstock.bench.plots import Axis, Bar, Series, axis, bars, lines, number_text


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (0, 7, [0, 2, 4, 6, 8]),
        (0, 0.013, [0, 0.005, 0.01, 0.015]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
    ],
)
def test_linear_ticks_are_round_and_hold_the_data(low: float, high: float, ticks: list[float]) -> None:
    assert Axis(label="x", low=low, high=high or 1.0).ticks() == pytest.approx(ticks)


def test_counts_have_no_ticks_between_two_numbers() -> None:
    assert Axis(label="x", low=0, high=3, whole=True).ticks() == [0, 1, 2, 3]


def test_an_axis_is_logarithmic_only_where_it_may_be_and_says_so() -> None:
    values = [1.0, 10.0, 1000.0]
    assert not axis("ms", values).log
    chosen = axis("ms", values, may_log=True)
    assert chosen.title == "ms (log scale)"
    assert chosen.ticks() == [1.0, 10.0, 100.0, 1000.0]
    assert chosen.share(100.0) - chosen.share(10.0) == pytest.approx(chosen.share(10.0) - chosen.share(1.0))
    assert axis("ms", [1.0, 29.0], may_log=True).title == "ms"


def test_a_linear_axis_begins_at_zero() -> None:
    assert axis("ms", [90.0, 100.0]).ticks()[0] == 0


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0], [5.0], [0.0, 1e9]])
def test_any_data_has_an_axis(values: list[float]) -> None:
    chosen = axis("ms", values, may_log=True)
    assert len(chosen.ticks()) >= 2
    assert all(0 <= chosen.share(value) <= 1 for value in values if value > 0 or not chosen.log)


def test_a_bar_s_length_is_its_value_from_zero() -> None:
    drawn = bars("t", "n", [Bar("a", 10, 10, 10, "10"), Bar("b", 20, 20, 20, "20")]).svg
    widths = [float(part.split('"')[0]) for part in drawn.split(' width="')[1:]]
    assert widths[1] == pytest.approx(2 * widths[0])


def test_one_line_needs_no_legend_and_two_have_one() -> None:
    one, two = Series("a", [(0, 0), (1, 1)]), Series("b", [(0, 1), (1, 0)])
    unit = Axis(label="x", low=0, high=1)
    assert lines("t", "n", unit, unit, [one]).legend == ()
    assert lines("t", "n", unit, unit, [one, two]).legend == ["a", "b"]


def test_numbers_have_the_digits_that_say_something() -> None:
    assert [number_text(value) for value in (0, 0.0123, 1.5, 99.96, 1234, 50_000)] == [
        "0", "0.0123", "1.5", "100", "1,234", "50k",
    ]  # fmt: skip
