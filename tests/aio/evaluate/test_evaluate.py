"""Whole evaluations of small tables with known answers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from penstock.aio.evaluate.baselines import base_rate, length, oracle
from penstock.aio.evaluate.cross import PARTS, cross
from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.figures import as_json
from penstock.aio.evaluate.folds import by_group, by_question, outside
from penstock.aio.evaluate.intervals import figure
from penstock.aio.evaluate.monitor import monitor_auc
from penstock.aio.evaluate.plot import reliability_svg
from penstock.aio.evaluate.report import Plan, Report, checked, evaluate
from penstock.aio.evaluate.saving import at_target, mixture, routed
from penstock.aio.query import Query
from penstock.errors import ConfigError
from tests.aio.evaluate.tables import hard_and_easy, made


class Words:
    """A recipe that rates by the first two words of a question, and remembers what it was trained on."""

    name = "words"

    def __init__(self) -> None:
        self.trained: list[tuple[frozenset[str], frozenset[str]]] = []

    def fit(self, train: Dataset, also: Sequence[Dataset]) -> WordRates:
        self.trained.append((frozenset(train.keys), frozenset(key for table in also for key in table.keys)))
        rates: dict[str, list[np.ndarray]] = {}
        for query, ok in zip(train.queries, train.ok, strict=True):
            rates.setdefault(_start(query), []).append(ok)
        return WordRates({start: np.mean(ok, axis=0) for start, ok in rates.items()}, train.ok.mean(axis=0))


class WordRates:
    def __init__(self, rates: dict[str, np.ndarray], overall: np.ndarray) -> None:
        self._rates, self._overall = rates, overall

    def predict(self, queries: Sequence[Query]) -> np.ndarray:
        return np.array([self._rates.get(_start(query), self._overall) for query in queries])

    def deviation(self, queries: Sequence[Query]) -> np.ndarray:
        return np.zeros((len(queries), len(self._overall)))


def _start(query: Query) -> str:
    return " ".join(query.ask.split()[:2])


@pytest.fixture(scope="module")
def report() -> Report:
    """Nothing changes it: judged once for all tests here."""
    return evaluate(hard_and_easy(), {"words": Words()}, Plan(folds=5))


def test_a_router_that_can_tell_hard_from_easy_stands_beside_its_baselines(report: Report) -> None:
    seen = report.seen
    assert list(seen) == ["words", "length", "base_rate", "oracle", "random"]
    assert seen["words"].apgr is not None
    assert seen["words"].apgr.mean > 0.85  # all hard ones first: 1 - 0.2 / 2, and the expert errs once
    assert seen["random"].apgr is not None
    assert seen["random"].apgr.mean == 0.5
    # All easy ones go to the cheap model: the expert's quality for 0.2 + 0.8 * 0.1 of the cost.
    assert seen["words"].quality is not None
    assert seen["words"].quality.mean > 0.99
    assert seen["words"].saving is not None
    assert seen["words"].saving.mean == pytest.approx(0.72, abs=0.01)
    assert seen["words"].saving_net is not None
    assert seen["words"].saving_net.mean == pytest.approx(0.72 - 0.05 * 0.8, abs=0.01)
    assert report.unseen is not None
    assert report.unseen["words"].apgr_pooled == pytest.approx(seen["words"].apgr_pooled, abs=0.01)


def parted(training: Dataset) -> np.ndarray:
    return by_question(training, 4, 0)


def test_no_question_is_judged_by_a_model_that_was_trained_on_it() -> None:
    """Rows are repeated, and repeated again in another table: none may be on both sides."""
    once = hard_and_easy(100)
    data = once.rows([*range(100), *range(100)])
    judge_rows: list[frozenset[str]] = []
    words = Words()

    def rate(train: Dataset, test: Dataset, hidden: frozenset[str]) -> np.ndarray:
        judge_rows.append(frozenset(test.keys))
        return words.fit(train, ()).predict(test.queries)

    cross(data, by_question(data, 5, 0), rate, parted, lambda: None)
    assert len(judge_rows) == 5 + 5 * 4
    assert all(not trained & seen for (trained, _), seen in zip(words.trained, judge_rows, strict=True))
    assert frozenset().union(*judge_rows) == frozenset(data.keys)

    words = Words()
    evaluate(data, {"words": words}, Plan(folds=3), also=[once])
    # What is left of the other table is exactly what may be trained on anyway.
    assert all(also == trained for trained, also in words.trained[: 3 + 3 * PARTS])


def test_whole_subjects_are_left_out_and_questions_they_share_as_well() -> None:
    texts = [f"question number {row} of them all" for row in range(40)]
    texts[39] = texts[0]  # the same question under two subjects
    groups = [f"subject {row // 10}" for row in range(40)]
    ok = np.stack([np.arange(40) % 2, np.ones(40)], axis=1)
    data = made(texts, ok, groups=groups)
    fold = by_group(data, 4, 0)
    assert fold is not None
    for at in range(4):
        train = outside(data, fold, (at,))
        inside = set(np.flatnonzero(fold == at))
        assert len({groups[row] for row in inside}) == 1
        assert not {groups[row] for row in train} & {groups[row] for row in inside}
        assert not {data.keys[row] for row in train} & {data.keys[row] for row in inside}
    assert by_group(made(texts, ok), 4, 0) is None


def test_thresholds_come_from_training_rows_only() -> None:
    """In the judged rows the cheap model always fails; nothing in the known rows says so."""
    known = np.tile([0.9, 0.95], (50, 1))
    known_ok = np.ones((50, 2))
    texts = [f"question {row}" for row in range(50)]
    judged_rows = made(texts, np.stack([np.zeros(50), np.ones(50)], axis=1))
    found = routed(known, known_ok, known, judged_rows, 0.95, 0.0)
    assert found.quality == 0.0  # with a threshold from the judged rows this would be 1
    assert found.gross == pytest.approx(0.9)
    # And outcomes of a fold have no part in the predictions or outcomes its threshold is solved on.
    data = hard_and_easy()
    fold = by_question(data, 5, 0)
    crossed = cross(
        data, fold, lambda train, test, hidden: np.tile(train.ok.mean(axis=0), (len(test), 1)), parted, int
    )
    changed = Dataset(**{**vars(data), "ok": np.where((fold == 2)[:, None], 0.5, data.ok)})
    again = cross(
        changed, fold, lambda train, test, hidden: np.tile(train.ok.mean(axis=0), (len(test), 1)), parted, int
    )
    assert np.isnan(crossed.inner[2][fold == 2]).all()
    np.testing.assert_array_equal(crossed.inner[2], again.inner[2])
    np.testing.assert_array_equal(crossed.outer[fold == 2], again.outer[fold == 2])
    assert not np.array_equal(crossed.outer[fold == 1], again.outer[fold == 1])


def test_the_saving_at_the_target_lies_between_the_points_of_the_curve() -> None:
    data = hard_and_easy()
    found = at_target(oracle(data, data), data, 0.9, 0.0)
    assert found.quality == pytest.approx(0.9)
    cheap = at_target(oracle(data, data), data, 0.5, 0.0)  # the cheap model alone reaches more than that
    assert cheap.gross == pytest.approx(0.9)
    assert cheap.tiers == (1.0, 0.0)


def test_the_random_mixture_is_the_cheapest_of_two_tiers() -> None:
    ok = np.zeros((100, 3))
    for column, right in enumerate((50, 60, 100)):
        ok[:right, column] = 1.0
    data = made([f"question {row}" for row in range(100)], ok, cost=(1.0, 5.0, 10.0))
    found = mixture(ok, data, 0.8)
    # 0.8 of the expert's quality: 0.4 of the first tier and 0.6 of the last, 0.4 * 0.1 + 0.6 of the cost.
    assert found.tiers == pytest.approx((0.4, 0.0, 0.6))
    assert found.quality == pytest.approx(0.8)
    assert found.gross == pytest.approx(0.36)


def test_baselines_know_lengths_and_subjects_from_training_rows_only() -> None:
    texts = ["word " * (row + 1) for row in range(100)]
    ok = np.stack([np.arange(100) < 50, np.ones(100)], axis=1)
    data = made(texts, ok, groups=["short" if row < 50 else "long" for row in range(100)])
    even, odd = data.rows(range(0, 100, 2)), data.rows(range(1, 100, 2))
    rated = length(even, odd)
    assert (np.diff(rated[:, 0]) <= 0).all()
    assert rated[:, 0].max() - rated[:, 0].min() > 0.5
    rates = base_rate(even, odd)
    assert rates[0, 0] > 0.8
    assert rates[-1, 0] < 0.2
    new = made(["another"], np.ones((1, 2)), groups=["new"])
    assert base_rate(even, new)[0, 0] == pytest.approx(0.5)


def test_an_interval_does_not_shrink_by_repeating_the_same_rows() -> None:
    once = figure([0.5, 0.6, 0.7], 3)
    assert once is not None
    assert once.mean == pytest.approx(0.6)
    assert once.half == pytest.approx(4.303 * 0.1 / 3**0.5)
    thrice = figure([0.5, 0.6, 0.7] * 3, 3)
    assert thrice is not None
    assert once.half is not None
    assert thrice.half is not None
    assert thrice.half == pytest.approx(once.half * (0.75**0.5))  # only the estimate of s changes
    assert figure([None, None], 2) is None
    assert figure([0.5, None], 2) is not None


def test_the_judge_of_the_monitor_is_judged_where_both_answers_are_there() -> None:
    texts = [f"How many apples are {row} apples and 1 apple?" for row in range(40)]
    right = np.arange(40) % 2
    said = [f"That makes {row + 1 if right[row] else row + 7}." for row in range(40)]
    expert = [f"The answer is {row + 1}." for row in range(40)]
    ok = np.stack([right, np.ones(40)], axis=1)
    data = made(texts, ok, answers={"model-0": said, "model-1": expert})
    found = monitor_auc(data, 4, 0)
    assert found is not None
    assert found.mean > 0.95
    assert monitor_auc(made(texts, ok), 4, 0) is None


def test_a_file_that_cannot_be_judged_says_why() -> None:
    with pytest.raises(ConfigError, match="has 6 different questions"):
        checked(hard_and_easy(6), 5)
    data = hard_and_easy()
    same = Dataset(**{**vars(data), "ok": np.ones_like(data.ok)})
    with pytest.raises(ConfigError, match="model-0 has the outcome 1 on all 200 rows of made; one class"):
        checked(same, 5)
    with pytest.raises(ConfigError, match="--folds must be from 2 to 20, got 1"):
        Plan(folds=1)


def test_a_dearer_tier_that_is_no_better_is_pointed_out() -> None:
    data = hard_and_easy()
    swapped = Dataset(**{**vars(data), "ok": data.ok[:, ::-1]})
    _, warnings = checked(swapped, 5)
    assert "model-1 costs 10 and is no better than model-0 at 1" in warnings[0]


@pytest.mark.parametrize(("rows", "groups"), [(60, 2), (60, 1), (25, 5)])
def test_small_files_and_few_subjects_are_judged_as_far_as_they_go(rows: int, groups: int) -> None:
    found = as_json(evaluate(hard_and_easy(rows, groups), {"words": Words()}, Plan(folds=3)), "words", None)
    assert found["apgr_seen"] is not None
    assert (found["apgr_unseen"] is None) == (groups == 1)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_figures_of_the_first_recipe_stand_at_the_top_with_their_intervals(report: Report) -> None:
    found = as_json(report, "words", None)
    assert found["apgr_seen"] == found["seen"]["words"]["apgr"]["mean"]
    low, high = found["intervals"]["apgr_seen"]
    assert low <= found["apgr_seen"] <= high
    assert found["saving_net"] == found["saving_net_seen"]
    assert found["tiers"][0] == {"model": "model-0", "cost": 1.0, "quality": 0.8}
    assert found["apgr_shipped"] is None


def test_a_reliability_diagram_has_a_panel_for_each_tier_and_a_dot_for_each_bin(report: Report) -> None:
    tiers = report.seen["words"].calibration
    drawn = reliability_svg("a < b", tiers)
    assert drawn.startswith("<svg ")
    assert "a &lt; b" in drawn
    assert drawn.count("<polyline") == 2
    assert drawn.count("<circle") == sum(len(found.bins) for found in tiers.values())
