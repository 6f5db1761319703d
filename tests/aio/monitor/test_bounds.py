"""Wilson's interval, and how many verdicts it takes."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.aio.monitor import samples_needed, wilson


@pytest.mark.parametrize(
    ("successes", "n", "expected"),
    [(8, 10, (0.4901, 0.9433)), (0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0)), (80, 100, (0.7112, 0.8666))],
)
def test_the_interval_is_the_published_one(successes: int, n: int, expected: tuple[float, float]) -> None:
    assert wilson(successes, n) == pytest.approx(expected, abs=1e-3)


def test_nothing_seen_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("quality", [0.3, 0.5, 0.7])
def test_so_many_samples_show_a_quality_with_the_stated_power_and_fewer_do_not(quality: float) -> None:
    needed = samples_needed(quality, 0.85, power=0.9)
    assert needed is not None
    rng = np.random.default_rng(1)

    def shown(n: int) -> float:
        return float(np.mean([wilson(good, n, 3.3)[1] < 0.85 for good in rng.binomial(n, quality, 2000)]))

    assert shown(needed) > 0.88
    assert shown(needed // 2) < 0.8


def test_what_is_not_under_the_threshold_cannot_be_shown_to_be() -> None:
    assert samples_needed(0.85, 0.85) is None
    assert samples_needed(0.849, 0.85, most=5000) is None
