"""Vectors and scores in the caller's process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock import LLM
from penstock.errors import ContextLengthError, InvalidRequestError
from tests.engine.encode.encoders import save
from tests.engine.tiny import save_tiny_llama
from tests.server import Server

TEXTS = ["A cat sits on the mat.", "A kitten is sitting on a rug.", "The stock market fell sharply."]


@pytest.fixture(scope="module")
def llm(embedding_model: Path) -> Iterator[LLM]:
    with LLM(str(embedding_model), device="cpu") as opened:
        yield opened


def test_a_row_for_each_text_of_length_one(llm: LLM) -> None:
    vectors = llm.embed(TEXTS)
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-6)
    assert llm.embed(TEXTS[0]).shape == (1, 384)
    assert llm.embed([]).shape == (0, 384)


def test_the_server_gives_the_same_vectors(llm: LLM, embedding_server: Server) -> None:
    reply = embedding_server.post("/v1/embeddings", {"input": TEXTS}).json()
    served = np.array([entry["embedding"] for entry in reply["data"]], dtype=np.float32)
    assert np.abs(llm.embed(TEXTS) - served).max() <= 1e-6


def test_more_texts_than_the_queue_holds_are_all_computed(embedding_model: Path) -> None:
    with LLM(str(embedding_model), device="cpu", max_running=2, max_waiting=3) as small:
        vectors = small.embed([f"text {number}" for number in range(20)])
    assert len(np.unique(vectors.round(5), axis=0)) == 20


def test_token_ids_dimensions_raw_vectors_and_cut_texts(llm: LLM) -> None:
    ids = llm.tokenizer.encode_pair(TEXTS[0])[0]
    assert np.array_equal(llm.embed(ids), llm.embed(TEXTS[0]))
    assert np.array_equal(llm.embed([ids, ids])[1], llm.embed(TEXTS[0])[0])
    raw = llm.embed(TEXTS[0], normalize=False, dimensions=8)
    assert llm.embed(TEXTS[0], dimensions=8) == pytest.approx(raw / np.linalg.norm(raw), abs=1e-6)
    cut = llm.embed("word " * 400, truncate_prompt_tokens=-1)
    assert np.array_equal(cut, llm.embed("word " * 254))


def test_scores_are_cosines(llm: LLM) -> None:
    query, *documents = llm.embed(TEXTS)
    scores = llm.score(TEXTS[0], TEXTS[1:])
    assert scores == pytest.approx([float(query @ document) for document in documents], abs=1e-6)
    assert llm.score("same", "same") == pytest.approx([1], abs=1e-6)


def test_wrong_texts_are_refused_with_their_place(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match=r"texts\[1\] is empty"):
        llm.embed(["a", ""])
    with pytest.raises(ContextLengthError, match=r"texts\[0\] has 402 tokens, but the model reads"):
        llm.embed("word " * 400)
    with pytest.raises(InvalidRequestError, match=r"documents\[0\] is empty"):
        llm.score("a", "")
    with pytest.raises(InvalidRequestError, match="between 1 and the model's 384, got 385"):
        llm.embed("a", dimensions=385)
    assert llm.embed("a").shape == (1, 384)


def test_an_encoder_does_not_generate(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="This model gives vectors and scores"):
        llm.generate("The sky is")
    with pytest.raises(InvalidRequestError, match="This model gives vectors and scores"):
        llm.chat([{"role": "user", "content": "Hello"}])


def with_tokenizer(folder: Path, model: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((model / name).read_bytes())
    return folder


def test_a_cross_encoder_scores_pairs_and_gives_no_vectors(embedding_model: Path, tmp_path: Path) -> None:
    save(tmp_path, "Bert", "ForSequenceClassification", num_labels=1, vocab_size=30522)
    with LLM(str(with_tokenizer(tmp_path, embedding_model)), device="cpu") as cross:
        scores = cross.score("where is water", ["a river", "a desert"])
        assert all(0 < score < 1 for score in scores)
        assert scores[0] != scores[1]
        with pytest.raises(InvalidRequestError, match="cross-encoder: it scores pairs of texts and gives no"):
            cross.embed("a")


def test_a_chat_model_gives_vectors_when_it_was_opened_for_it(embedding_model: Path, tmp_path: Path) -> None:
    folder = with_tokenizer(save_tiny_llama(tmp_path / "tiny", vocab_size=30522), embedding_model)
    options = {"device": "cpu", "kv_cache_memory": 1 << 22}
    with LLM(str(folder), **options) as chat, pytest.raises(InvalidRequestError, match="pooling='mean'"):
        chat.embed("a")
    with LLM(str(folder), pooling="last", **options) as pooled:
        assert pooled.embed(["a cat", "a dog"]).shape == (2, 32)
        assert pooled.score("a cat", ["a cat"]) == pytest.approx([1], abs=1e-6)


def test_a_tokenizer_larger_than_the_model_is_warned_of(
    embedding_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fitting = with_tokenizer(save_tiny_llama(tmp_path / "fitting", vocab_size=30600), embedding_model)
    small = with_tokenizer(save_tiny_llama(tmp_path / "small", vocab_size=256), embedding_model)
    LLM(str(fitting), device="cpu", kv_cache_memory=1 << 22).close()
    assert caplog.messages == []
    LLM(str(small), device="cpu", kv_cache_memory=1 << 22).close()
    (warning,) = caplog.messages
    assert "has 30522 tokens, but the model only the first 256" in warning
