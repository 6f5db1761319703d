"""Requests of an open loop come at the mean rate that was asked for."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest

from penstock.bench.arrivals import ARRIVALS, check_arrivals
from penstock.errors import ConfigError

COUNT, RATE = 4000, 20.0


def gaps(name: str, size: int = 8) -> list[float]:
    moments = ARRIVALS[name](COUNT, RATE, size, random.Random(1))
    assert moments == sorted(moments)
    assert (len(moments), moments[0]) == (COUNT, 0.0)
    return [later - sooner for sooner, later in itertools.pairwise(moments)]


@pytest.mark.parametrize("name", ARRIVALS)
def test_the_mean_rate_is_kept(name: str) -> None:
    assert statistics.mean(gaps(name)) == pytest.approx(1 / RATE, rel=0.1)


def test_a_poisson_process_has_exponential_gaps() -> None:
    found = gaps("poisson")
    assert statistics.stdev(found) == pytest.approx(statistics.mean(found), rel=0.1)


def test_a_constant_rate_has_equal_gaps() -> None:
    assert gaps("constant") == pytest.approx([1 / RATE] * (COUNT - 1))


def test_a_burst_comes_at_one_moment() -> None:
    found = gaps("burst", size=5)
    assert sum(gap > 0 for gap in found) == COUNT / 5 - 1
    assert found[:4] == [0.0] * 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("tides", 1.0, 1), "--arrivals must be one of poisson, burst, constant"),
        (("poisson", 0.0, 1), "--rate must be"),
        (("poisson", float("nan"), 1), "--rate must be"),
        (("burst", 1.0, 0), "--burst-size must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, float, int], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_arrivals(*arguments)
