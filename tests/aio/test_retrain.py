"""Heads that learn from verdicts: towards what was seen, no further than it shows."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.aio.heads import Head
from penstock.aio.retrain import Refit, Rows, cross_validated, pack_heads, refit, retrain, unpack_heads
from penstock.errors import ConfigError

SIZE = 6


def head(coefficients: list[float] | None = None, intercept: float = 0.0, variance: float = 0.05) -> Head:
    values = np.array(coefficients or [0.0] * SIZE, np.float32)
    return Head(values, intercept, (variance * np.eye(SIZE + 1)).astype(np.float32))


def seen(truth: Head, n: int, seed: int = 0) -> Rows:
    """Verdicts on answers whose quality follows `truth`."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, SIZE)).astype(np.float32)
    chance = 1 / (1 + np.exp(-(vectors @ truth.coefficients + truth.intercept)))
    return Rows(vectors, (rng.random(n) < chance).astype(np.float64), np.ones(n))


TRUTH = head([1.5, -1.0, 0.5, 0.0, 0.0, 0.0], 1.0)


def test_with_many_verdicts_the_head_finds_what_is_behind_them() -> None:
    found = refit(head(), seen(TRUTH, 4000), strength=0.1)
    assert np.abs(found.coefficients - TRUTH.coefficients).max() < 0.2
    assert abs(found.intercept - TRUTH.intercept) < 0.2


def test_with_few_verdicts_it_stays_near_the_old_one_and_strength_holds_it() -> None:
    rows = seen(TRUTH, 30)
    loose, firm = (refit(head(), rows, strength) for strength in (0.1, 10.0))
    assert np.linalg.norm(firm.coefficients) < 0.5 * np.linalg.norm(loose.coefficients)


def test_it_is_surer_of_itself_than_before() -> None:
    found = refit(head(), seen(TRUTH, 500))
    assert (np.diag(found.covariance) < np.diag(head().covariance)).all()


def test_the_minimum_is_found_for_outcomes_between_0_and_1_and_weights() -> None:
    rows = Rows(*(array[:80] for array in (seen(TRUTH, 80).vectors, np.full(80, 0.3), np.full(80, 2.0))))
    found = refit(head(variance=1e4), rows)
    score = rows.vectors @ found.coefficients + found.intercept
    assert float((1 / (1 + np.exp(-score))).mean()) == pytest.approx(0.3, abs=1e-3)


def test_a_head_that_is_right_already_is_kept() -> None:
    kept = [not cross_validated(TRUTH, seen(TRUTH, 200, seed)).better for seed in range(10)]
    assert sum(kept) >= 7


def test_a_gain_within_its_error_is_none() -> None:
    assert not Refit(TRUTH, 100, 1.0, before=0.500, after=0.495, error=0.01).better
    assert Refit(TRUTH, 100, 1.0, before=0.500, after=0.480, error=0.01).better


def test_a_head_that_is_wrong_is_replaced_and_others_are_left_alone() -> None:
    heads = {"small": head(), "large": TRUTH, "expert": TRUTH}
    result = retrain(heads, {"small": seen(TRUTH, 400), "large": seen(TRUTH, 20)})
    assert set(result.refits) == {"small"}
    assert result.refits["small"].after < result.refits["small"].before
    assert result.heads["large"] is TRUTH
    assert result.heads["expert"] is TRUTH
    assert "20 verdicts" in result.refused["large"]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            Rows(np.zeros((100, SIZE), np.float32), np.ones(100), np.ones(100)),
            "100 verdicts, 100 of them good",
        ),
        (
            Rows(np.zeros((100, SIZE), np.float32), np.zeros(100), np.ones(100)),
            "100 verdicts, 0 of them good",
        ),
        (Rows(np.zeros((0, SIZE), np.float32), np.zeros(0), np.ones(0)), "0 verdicts"),
        (Rows(np.zeros((90, 3), np.float32), np.zeros(90), np.ones(90)), "do not fit"),
        (Rows(np.full((90, SIZE), np.nan, np.float32), np.zeros(90), np.ones(90)), "finite"),
        (Rows(np.zeros((90, SIZE), np.float32), np.full(90, np.nan), np.ones(90)), "from 0 to 1"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused_in_a_sentence(rows: Rows, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        cross_validated(head(), rows)


def test_a_covariance_that_is_singular_does_no_harm() -> None:
    flat = Head(TRUTH.coefficients, 1.0, np.ones((SIZE + 1, SIZE + 1), np.float32))
    assert np.isfinite(refit(flat, seen(TRUTH, 100)).coefficients).all()


def test_good_answers_to_questions_that_are_hard_for_the_expert_too_are_a_class() -> None:
    rows = seen(TRUTH, 200)
    assert cross_validated(head(), Rows(rows.vectors, 0.2 * rows.outcomes, rows.weights)).rows == 200


def test_heads_survive_being_packed() -> None:
    (name, found), *rest = unpack_heads(pack_heads({"small": TRUTH})).items()
    assert (name, rest) == ("small", [])
    assert found.intercept == TRUTH.intercept
    assert (found.coefficients == TRUTH.coefficients).all()
    assert (found.covariance == TRUTH.covariance).all()
