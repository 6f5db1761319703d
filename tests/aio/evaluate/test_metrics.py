"""Figures of merit on cases whose answers are known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from penstock.aio.evaluate.metrics import auc, calibration, curve

RNG = np.random.default_rng(7)
WEAK = (np.arange(1000) % 10 < 7).astype(float)  # right on 70%
STRONG = np.ones(1000)


def test_a_router_that_sends_all_it_must_first_recovers_the_gap_with_those_calls() -> None:
    line = curve(STRONG - WEAK + 1e-6 * RNG.random(1000), WEAK, STRONG)
    # Accuracy rises in a straight line over the first 30% of calls and is flat from there: 1 - 0.3 / 2.
    assert line.apgr == pytest.approx(0.85)
    assert line.cpt(0.5) == pytest.approx(0.15)
    assert line.cpt(0.8) == pytest.approx(0.24)


def test_a_router_that_sends_what_it_must_last_is_as_far_below_random_as_the_best_is_above() -> None:
    line = curve(WEAK - STRONG + 1e-6 * RNG.random(1000), WEAK, STRONG)
    assert line.apgr == pytest.approx(0.15)
    assert line.cpt(0.5) == pytest.approx(0.85)


def test_one_score_for_all_is_the_random_mixture() -> None:
    line = curve(np.full(1000, 0.3), WEAK, STRONG)
    assert line.apgr == pytest.approx(0.5)
    assert line.cpt(0.5) == pytest.approx(0.5)


def test_random_scores_are_near_one_half() -> None:
    assert curve(RNG.random(1000), WEAK, STRONG).apgr == pytest.approx(0.5, abs=0.06)


def test_a_strong_model_that_is_no_better_leaves_no_gap_to_recover() -> None:
    line = curve(RNG.random(1000), STRONG, WEAK)
    assert line.apgr is None
    assert line.cpt(0.5) is None


def test_thresholds_are_the_edges_of_ten_equal_bins() -> None:
    """The definition, spelled out: all edges of the deciles, sent where the score is at least the edge."""
    scores = RNG.normal(size=487)
    weak, strong = (RNG.random((2, 487)) < np.array([[0.6], [0.8]])).astype(float)
    ordered = np.sort(scores)
    points = [(0.0, weak.mean())]
    for tenth in range(10, -1, -1):
        place = tenth / 10 * (len(scores) - 1)
        below, above = ordered[int(place)], ordered[min(int(place) + 1, len(scores) - 1)]
        edge = below + (place - int(place)) * (above - below)
        sent = [score >= edge - 1e-12 for score in scores]
        right = [s if go else w for go, s, w in zip(sent, strong, weak, strict=True)]
        points.append((np.mean(sent), np.mean(right)))
    area = sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points))
    wanted = (area - weak.mean()) / (strong.mean() - weak.mean())
    assert curve(scores, weak, strong).apgr == pytest.approx(wanted)


def test_auc_counts_pairs_and_ties_half() -> None:
    scores, good = np.array([0.1, 0.4, 0.4, 0.8, 0.2]), np.array([False, True, False, True, True])
    pairs = [(p, n) for p in scores[good] for n in scores[~good]]
    wanted = np.mean([1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs])
    assert auc(scores, good) == pytest.approx(wanted)
    assert auc(scores, np.ones(5, dtype=bool)) is None


def test_calibration_says_how_far_predictions_are_from_what_came_true() -> None:
    predicted = np.repeat([0.25, 0.85], 100)
    ok = np.concatenate([np.arange(100) < 25, np.arange(100) < 65]).astype(float)
    found = calibration(predicted, ok)
    assert found.ece == pytest.approx(0.1)  # right in one half, 0.2 too sure in the other
    assert [(part.rows, round(part.observed, 2)) for part in found.bins] == [(100, 0.25), (100, 0.65)]
    assert found.brier == pytest.approx(np.mean((predicted - ok) ** 2))
