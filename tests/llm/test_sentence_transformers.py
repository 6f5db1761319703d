"""The library that most embedding models are made with gives the same vectors and scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock import LLM
from tests.engine.encode.encoders import save

TEXTS = [
    "The sky is blue.",
    "hi",
    "Ünïcode, 漢字 and emoji 🦀",
    "A much longer text about rivers, dams and penstocks that carry water down to turbines. " * 9,
    *(f"Text number {number} is of another length" + " again" * (number % 20) for number in range(60)),
]
TOLERANCE = 1e-5


def test_vectors_are_those_of_sentence_transformers(embedding_model: Path) -> None:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(embedding_model), device="cpu", local_files_only=True)
    expected = reference.encode(TEXTS, show_progress_bar=False)
    with LLM(str(embedding_model), device="cpu") as llm:
        assert llm.engine.info.max_model_len == reference.max_seq_length
        assert np.abs(llm.embed(TEXTS) - expected).max() <= TOLERANCE


@pytest.mark.parametrize("activation", [None, "torch.nn.modules.linear.Identity"])
def test_scores_are_those_of_its_cross_encoders(
    embedding_model: Path, tmp_path: Path, activation: str | None
) -> None:
    from sentence_transformers import CrossEncoder

    extra = {"sentence_transformers": {"activation_fn": activation}} if activation else {}
    shape = {"vocab_size": 30522, "max_position_embeddings": 512}
    save(tmp_path, "Bert", "ForSequenceClassification", num_labels=1, **shape, **extra)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((embedding_model / name).read_bytes())
    reference = CrossEncoder(str(tmp_path), device="cpu", local_files_only=True)
    pairs = [(TEXTS[0], text) for text in TEXTS[:20]]
    expected = reference.predict(pairs, show_progress_bar=False)
    assert not activation or expected.max() > 1 or expected.min() < 0
    with LLM(str(tmp_path), device="cpu") as llm:
        scores = llm.score(TEXTS[0], TEXTS[:20])
    assert np.abs(np.array(scores) - expected).max() <= TOLERANCE
