"""Trained predictors on texts whose embeddings are made up, so that what can be learnt is known."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from penstock.aio.encoder import WIDTH
from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.shipped import Shipped, judge_shipped
from penstock.aio.fitting import Ridge
from penstock.aio.learn import train_predictor
from penstock.aio.learned import LearnedPredictor
from penstock.aio.learned_file import SHIPPED, load, save
from penstock.aio.predictor import load_predictor
from penstock.aio.query import query_of_text
from penstock.aio.text_recipe import RECIPES, TextRecipe
from penstock.aio.words import load_words
from penstock.errors import ConfigError
from tests.aio.evaluate.tables import hard_and_easy, made

MODELS = ("model-0", "model-1")


def embed(texts: Sequence[str]) -> np.ndarray:
    """Hard questions lie in one corner, easy ones in another, with noise that the text decides."""
    noise = np.stack(
        [np.random.default_rng(len(text) * 7 + ord(text[-1])).normal(size=WIDTH) for text in texts]
    )
    corner = np.zeros((len(texts), WIDTH))
    corner[:, 0] = [30.0 if "hard" in text else -30.0 for text in texts]
    vectors = noise + corner
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def recipe() -> TextRecipe:
    return TextRecipe("encoder", embed)


def trained(*tables: Dataset) -> LearnedPredictor:
    made_up = train_predictor(tables, recipe=recipe(), step=lambda what: None)
    return replace(made_up, embed=embed)


@pytest.fixture(scope="module")
def predictor() -> LearnedPredictor:
    return trained(hard_and_easy(120))


def test_what_only_the_expert_can_answer_is_learnt_from_the_embedding() -> None:
    data = hard_and_easy(120)
    fitted = recipe().fit(data.rows(range(100)), ())
    judged = data.rows(range(100, 120))
    quality = fitted.predict(judged.queries)
    hard = judged.ok[:, 0] == 0
    assert quality[hard, 0].max() < 0.3
    assert quality[~hard, 0].min() > 0.7
    assert quality[:, 1].min() > 0.8
    assert (fitted.deviation(judged.queries) > 0).all()


def test_other_tables_teach_the_models_they_share_and_gaps_are_no_answers() -> None:
    data = hard_and_easy(60)
    other = made(
        [f"A hard one of another kind, number {row}" for row in range(60)],
        np.stack([np.zeros(60), np.full(60, np.nan)], axis=1),
    )
    alone = recipe().fit(data, ())
    both = recipe().fit(data, [other])
    asked = [query_of_text("A hard question that nobody has asked")]
    assert both.predict(asked)[0, 0] < alone.predict(asked)[0, 0] + 0.05
    assert both.trained.models == data.models


def test_a_prediction_for_a_left_out_row_is_that_of_a_fit_without_it() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(40, 5)), rng.normal(size=(40, 2))
    _, _, left_out = Ridge(x).at(y, 4.0)
    kept = np.arange(40) != 7
    weights, intercepts, _ = Ridge(x[kept]).at(y[kept], 4.0)
    np.testing.assert_allclose(x[7] @ weights + intercepts, left_out[7], rtol=1e-6)


def test_a_saved_predictor_rates_as_before_and_knows_what_it_was_trained_on(
    tmp_path: Path, predictor: LearnedPredictor
) -> None:
    path = tmp_path / "encoder.npz"
    save(predictor, path)
    again = replace(load(path), embed=embed)
    query = query_of_text("A hard question with the number 3000")
    before, after = predictor.rate(query, MODELS), again.rate(query, MODELS)
    assert after.quality == pytest.approx(before.quality, abs=1e-4)
    assert after.deviation == pytest.approx(before.deviation, abs=1e-3)
    assert again.trained_keys == predictor.trained_keys == frozenset(hard_and_easy(120).keys)
    assert again.version.startswith("encoder-")
    assert len(after.vector) == 2 + len(MODELS)


def test_what_lies_far_from_all_training_rows_is_doubted_more(predictor: LearnedPredictor) -> None:
    def turned(texts: Sequence[str]) -> np.ndarray:
        return -embed(texts)[:, ::-1]

    known = query_of_text("An easy question with the number 17")
    strange = replace(predictor, embed=turned)
    assert strange.rate(known, MODELS).deviation[0] > predictor.rate(known, MODELS).deviation[0]


def test_new_heads_take_the_place_of_old_ones(predictor: LearnedPredictor) -> None:
    head = predictor.heads["model-0"]
    changed = predictor.refitted({"model-0": type(head)(head.coefficients * 0, 5.0, head.covariance)}, "new")
    rating = changed.rate(query_of_text("A hard question"), MODELS)
    assert rating.quality[0] == pytest.approx(1 / (1 + np.exp(-5.0)), abs=1e-6)
    assert rating.quality[1] == predictor.rate(query_of_text("A hard question"), MODELS).quality[1]
    assert changed.version == "new"


def test_a_file_that_is_no_predictor_and_a_model_it_does_not_know_are_said(
    tmp_path: Path, predictor: LearnedPredictor
) -> None:
    (tmp_path / "text").write_text("not an archive")
    with pytest.raises(ConfigError, match="is not a predictor"):
        load(tmp_path / "text")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none")
    with pytest.raises(
        ConfigError, match="has not seen gpt-9 asked the same; these were measured together: model-0, model-1"
    ):
        predictor.rate(query_of_text("What?"), ["gpt-9"])


def claiming(shape: str, kind: str = "<f4") -> bytes:
    """An archive with an array whose header promises more than there is."""
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("about.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        claiming("(100000000000,)"),
        claiming("(-1,)"),
        claiming("(10,)"),
        claiming("(10,)", "|O"),
        claiming("(100000000000,)", "|V0"),
        claiming("(" * 150 + ")" * 150),
        (SHIPPED / "light.npz").read_bytes()[:100_000],
        (SHIPPED / "light.npz").read_bytes().replace(b"PK\x03\x04", b"PK\x03\x05"),
    ],
    ids=[
        "empty",
        "beginning",
        "huge",
        "negative",
        "short",
        "objects",
        "nothings",
        "nested",
        "cut",
        "marred",
    ],
)
def test_a_damaged_file_is_said_to_be_none_before_there_is_memory_for_it(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError, match="is not a predictor"):
        load(tmp_path / "file")
    with pytest.raises(ConfigError, match="does not hold word vectors"):
        load_words(tmp_path / "file")


LADDER = ("Phi-3-mini", "Llama-3.1-8B", "Llama-3.1-70B", "gemini-1.5-pro")


@pytest.mark.parametrize("name", list(RECIPES))
def test_what_is_shipped_knows_the_default_ladder_and_is_calibrated_on_what_it_did_not_see(name: str) -> None:
    shipped = load_predictor(name)
    assert shipped.name == name
    assert shipped.sample.references == LADDER
    assert len(shipped.trained_keys) > 10_000
    np.testing.assert_allclose(shipped.sample.quality.mean(axis=0), shipped.sample.ok.mean(axis=0), atol=0.02)


def test_an_easy_sum_is_safe_with_a_small_model_and_a_hard_proof_is_not() -> None:
    light = load_predictor("light")
    easy, hard = (
        light.rate(query_of_text(text), LADDER).quality
        for text in (
            "Ann has 3 apples and buys 4 more. How many apples does she have?",
            "Let $f$ be holomorphic on the unit disc. Find the number of zeros of $f^{(n)}$ if $n=7$.",
        )
    )
    assert easy[0] > 0.9
    assert hard[0] < 0.6 < hard[3] + 0.3
    assert easy[3] - easy[0] < hard[3] - hard[0]


def test_a_query_is_rated_by_the_family_it_looks_like() -> None:
    """In one kind of question the small model is as good as the large one, in the other it never is."""
    easy = made(
        [f"easy number {row}" for row in range(80)], np.ones((80, 2)) - np.eye(2)[np.arange(80) % 2] * 0.3
    )
    hard = hard_and_easy(120)
    both = trained(easy, hard)
    [one, other] = [both.rate(query_of_text(text), MODELS) for text in ("easy number 900", "A hard question")]
    assert np.flatnonzero(one.vector[: 2 + len(MODELS)]).size
    assert np.flatnonzero(other.vector[2 + len(MODELS) :]).size
    assert one.quality[0] > 0.7
    assert other.quality[0] < 0.3


def test_the_shipped_predictors_fit_into_any_query() -> None:
    light = load_predictor("light")
    for text in ("", " ", "\ud800", "x" * 200_000, "法国的首都是哪里？", "\x00\n", "🙂" * 50):
        rating = light.rate(query_of_text(text), LADDER)
        assert all(0 <= chance <= 1 for chance in rating.quality)
        assert np.isfinite(rating.vector).all()


def test_a_shipped_model_is_judged_on_questions_it_was_not_trained_on_only(
    predictor: LearnedPredictor,
) -> None:
    shipped = Shipped(predictor, predictor.trained_keys, predictor.trained_groups)
    fresh = hard_and_easy(200)  # of which 120 were trained on
    found = judge_shipped(shipped, fresh, 0.95, 4, 0)
    assert found.trained_on == 120
    assert found.all is not None
    assert found.all.rows == 80
    assert found.all.apgr is not None
    assert found.all.apgr.mean > 0.8
    assert found.seen is not None
    assert found.unseen is None  # all subjects were trained on
    known = judge_shipped(shipped, hard_and_easy(120), 0.95, 4, 0)
    assert known.all is None
    assert "120 of 120 rows are questions that the shipped model was trained on" in known.why_not
    others = made([f"question {row}" for row in range(30)], np.zeros((30, 3)), cost=(1.0, 2.0, 3.0))
    assert "model-2" in judge_shipped(shipped, others, 0.95, 4, 0).why_not
