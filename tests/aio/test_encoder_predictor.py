"""The encoder predictor on texts whose embeddings are made up, so that what can be learnt is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from penstock.aio.encoder import WIDTH
from penstock.aio.encoder_predictor import EncoderPredictor, load, save
from penstock.aio.encoder_recipe import EncoderRecipe
from penstock.aio.encoder_train import train_encoder
from penstock.aio.encoder_training import Ridge
from penstock.aio.evaluate.shipped import Shipped, judge_shipped
from penstock.aio.query import query_of_text
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


@pytest.fixture(scope="module")
def predictor() -> EncoderPredictor:
    return train_encoder([hard_and_easy(120)], embed=embed)


def test_what_only_the_expert_can_answer_is_learnt_from_the_embedding() -> None:
    data = hard_and_easy(120)
    fitted = EncoderRecipe(embed).fit(data.rows(range(100)), ())
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
    alone = EncoderRecipe(embed).fit(data, ())
    both = EncoderRecipe(embed).fit(data, [other])
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
    tmp_path: Path, predictor: EncoderPredictor
) -> None:
    path = tmp_path / "encoder.npz"
    save(predictor, path)
    again = load(path, embed)
    query = query_of_text("A hard question with the number 3000")
    before, after = predictor.rate(query, MODELS), again.rate(query, MODELS)
    assert after.quality == pytest.approx(before.quality, abs=1e-4)
    assert after.deviation == pytest.approx(before.deviation, abs=1e-3)
    assert again.trained_keys == predictor.trained_keys == frozenset(hard_and_easy(120).keys)
    assert again.version.startswith("encoder-")
    assert len(after.vector) == 1 + len(MODELS)


def test_what_lies_far_from_all_training_rows_is_doubted_more(predictor: EncoderPredictor) -> None:
    def turned(texts: Sequence[str]) -> np.ndarray:
        return -embed(texts)[:, ::-1]

    known = query_of_text("An easy question with the number 17")
    strange = replace(predictor, embed=turned)
    assert strange.rate(known, MODELS).deviation[0] > predictor.rate(known, MODELS).deviation[0]


def test_new_heads_take_the_place_of_old_ones(predictor: EncoderPredictor) -> None:
    head = predictor.heads["model-0"]
    changed = predictor.refitted({"model-0": type(head)(head.coefficients * 0, 5.0, head.covariance)}, "new")
    rating = changed.rate(query_of_text("A hard question"), MODELS)
    assert rating.quality[0] == pytest.approx(1 / (1 + np.exp(-5.0)), abs=1e-6)
    assert rating.quality[1] == predictor.rate(query_of_text("A hard question"), MODELS).quality[1]
    assert changed.version == "new"


def test_a_file_that_is_no_predictor_and_a_model_it_does_not_know_are_said(
    tmp_path: Path, predictor: EncoderPredictor
) -> None:
    (tmp_path / "text").write_text("not an archive")
    with pytest.raises(ConfigError, match="is not an encoder predictor"):
        load(tmp_path / "text")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none")
    with pytest.raises(ConfigError, match="does not know 'gpt-9'; it knows model-0, model-1"):
        predictor.rate(query_of_text("What?"), ["gpt-9"])


def test_the_shipped_heads_can_be_loaded_and_know_the_default_ladder() -> None:
    shipped = load()
    assert {"Phi-3-mini", "Llama-3.1-8B", "Llama-3.1-70B", "gemini-1.5-pro"} <= set(shipped.references)
    assert shipped.sample.quality.shape == shipped.sample.ok.shape
    assert len(shipped.trained_keys) > 10_000


def test_a_shipped_model_is_judged_on_questions_it_was_not_trained_on_only(
    predictor: EncoderPredictor,
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
    assert "was not trained on model-2" in judge_shipped(shipped, others, 0.95, 4, 0).why_not
