"""The choice of a tier, and what a target becomes."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.aio.choose import ALWAYS_EXPERT, Ladder, choices, choose, reached, shares, solve

COSTS = shares([1.0, 5.0, 30.0, 100.0])
NONE = [0.0] * 4


def sample(seed: int = 0, rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Predicted quality of four steps, calibrated by construction, and outcomes drawn from it."""
    draw = np.random.default_rng(seed)
    hardness = draw.normal(size=(rows, 1))
    quality = 1 / (1 + np.exp(hardness - np.array([[-0.5, 0.3, 1.0, 1.5]])))
    return quality, (draw.random(quality.shape) < quality).astype(float)


def test_an_easy_question_takes_the_cheapest_step_and_a_hard_one_the_expert() -> None:
    assert choose([0.95, 0.96, 0.97, 0.98], NONE, COSTS, 0.3) == 0
    assert choose([0.10, 0.15, 0.40, 0.90], NONE, COSTS, 0.3) == 3


def test_what_counts_is_the_gain_and_not_that_the_cheap_one_fails() -> None:
    """Nobody can answer this one: then nobody need be paid to try."""
    assert choose([0.02, 0.02, 0.03, 0.04], NONE, COSTS, 0.3) == 0


def test_of_equals_the_cheapest_is_taken() -> None:
    assert choose([0.5] * 4, NONE, COSTS, 0.0) == 0


def test_doubt_about_a_cheap_step_moves_the_choice_up() -> None:
    quality = [0.80, 0.80, 0.81, 0.90]
    assert choose(quality, [0.15, 0.15, 0.15, 0.0], COSTS, 0.2, caution=0.0) == 0
    assert choose(quality, [0.15, 0.15, 0.15, 0.0], COSTS, 0.2, caution=2.0) == 3


def test_a_closed_step_is_not_taken() -> None:
    assert choose([0.95] * 4, NONE, COSTS, 0.3, open_=[False, False, True, True]) == 2


def test_a_target_becomes_the_rate_that_just_reaches_it_elsewhere_too() -> None:
    threshold = solve(*sample(0), np.array(COSTS), 0.95)
    assert threshold.quality >= 0.95
    assert 0.3 < threshold.cost < 0.8
    quality, ok = sample(1)
    got, spent = reached(choices(quality, np.array(COSTS), threshold.rate), ok, np.array(COSTS))
    assert got / ok[:, -1].mean() == pytest.approx(0.95, abs=0.015)
    assert spent == pytest.approx(threshold.cost, abs=0.03)


def test_a_lower_target_costs_less() -> None:
    ladder = Ladder(*sample(), costs=[1.0, 5.0, 30.0, 100.0])
    costs = [ladder.threshold(target).cost for target in (0.7, 0.8, 0.9, 0.95, 0.99)]
    assert costs == sorted(costs)


def test_a_target_that_no_choice_reaches_leaves_only_the_expert() -> None:
    """Predictions that are the wrong way round: whatever is chosen by them is bad."""
    quality, ok = sample()
    threshold = solve(1 - quality, ok, np.array(COSTS), 1.0)
    assert threshold.rate == ALWAYS_EXPERT
    assert choose([1.0, 1.0, 1.0, 0.0], NONE, COSTS, threshold.rate) == 3


def test_the_best_of_some_steps_is_known_before_anybody_is_asked() -> None:
    ladder = Ladder(*sample(), costs=[1.0, 5.0, 30.0, 100.0])
    assert ladder.best([0]) < ladder.best([0, 1]) < ladder.best([0, 1, 2, 3])
    assert ladder.best([0]) < 0.95 <= ladder.best([0, 1, 2, 3])


def test_free_tiers_have_nothing_to_save() -> None:
    assert shares([0.0, 0.0]) == [0.0, 0.0]
    threshold = Ladder(*sample(), costs=[0.0] * 4).threshold(0.95)
    assert threshold.quality >= 0.95
    assert threshold.cost == 0.0
