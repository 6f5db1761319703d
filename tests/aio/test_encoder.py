"""Vectors of the numpy encoder against sentence-transformers' own, and what is done with odd texts."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from penstock.aio.encoder import (
    MAX_CHARACTERS,
    REMEMBERED_TEXTS,
    WIDTH,
    Encoder,
    load_encoder,
    open_encoder,
)
from penstock.errors import ConfigError, ModelError

TEXTS = [
    "How do I reset my password?",
    "",
    "Wie setze ich mein Passwort zurück?",
    "如何重置密码?",
    "A river.",
    "def mean(values): return sum(values) / len(values)",
    "The committee agreed that the minutes of the last meeting should be read again. "
    * 40,  # over 256 tokens
    "x" * 500,
]


@pytest.fixture(scope="module")
def encoder(embedding_model: Path) -> Encoder:
    return open_encoder(embedding_model)


def test_vectors_are_those_of_sentence_transformers(encoder: Encoder, embedding_model: Path) -> None:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(embedding_model), device="cpu")
    assert reference.max_seq_length == 256
    expected = reference.encode(TEXTS, normalize_embeddings=True, show_progress_bar=False)
    found = encoder.embed(TEXTS)
    assert found.shape == (len(TEXTS), WIDTH)
    assert found.dtype == np.float32
    assert (found * expected).sum(axis=1).min() > 0.9999
    assert np.allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)


def test_a_text_has_the_same_vector_alone_and_in_company(encoder: Encoder, embedding_model: Path) -> None:
    together = encoder.embed(TEXTS)
    alone = open_encoder(embedding_model)
    for text, vector in zip(TEXTS, together, strict=True):
        assert np.abs(alone.embed([text])[0] - vector).max() < 1e-5


def test_no_texts_have_no_vectors(encoder: Encoder) -> None:
    assert encoder.embed([]).shape == (0, WIDTH)


def test_what_is_not_text_to_the_tokenizer_has_a_vector_too(encoder: Encoder) -> None:
    vectors = encoder.embed(["half a pair \ud800", "\x00", "[SEP] [MASK]"])
    assert np.isfinite(vectors).all()


def test_only_the_beginning_of_a_very_long_text_is_read(encoder: Encoder) -> None:
    text = "water " * 200_000
    assert np.array_equal(encoder.embed([text])[0], encoder.embed([text[:MAX_CHARACTERS]])[0])


def test_texts_are_remembered_but_not_without_end(embedding_model: Path) -> None:
    encoder = open_encoder(embedding_model)
    computed: list[int] = []
    real = encoder._model.mean_states

    class Counting:
        width = encoder._model.width

        def mean_states(self, texts: list[list[int]]) -> np.ndarray:
            computed.append(len(texts))
            return real([text[:3] for text in texts])  # short: this test is about the memory

    encoder._model = Counting()  # type: ignore[assignment]
    first = encoder.embed(["one", "two", "one"])
    assert computed == [2]
    assert np.array_equal(first[0], first[2])
    assert np.array_equal(encoder.embed(["two", "one"]), first[[1, 0]])
    assert computed == [2]
    encoder.embed([f"text {number}" for number in range(REMEMBERED_TEXTS)])
    encoder.embed(["one"])
    assert computed == [2, REMEMBERED_TEXTS, 1]


def test_what_the_caller_does_with_a_vector_does_not_change_the_remembered_one(encoder: Encoder) -> None:
    vectors = encoder.embed(["mine to change"])
    vectors[:] = 0
    assert np.linalg.norm(encoder.embed(["mine to change"])) == pytest.approx(1.0, abs=1e-5)


def test_several_threads_may_embed_at_once(encoder: Encoder) -> None:
    texts = [[f"thread {thread} text {number % 3}" for number in range(6)] for thread in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(encoder.embed, texts))
    for each, vectors in zip(texts, found, strict=True):
        assert np.abs(encoder.embed(each) - vectors).max() < 1e-5


def test_a_model_of_another_kind_is_refused(embedding_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(embedding_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))
    with pytest.raises(ModelError, match="'llama' with 'gelu', not 'bert'"):
        open_encoder(folder)


def test_a_model_that_is_not_there_is_said_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"The text encoder ./nowhere cannot be used: There is nothing at"):
        load_encoder("./nowhere")
