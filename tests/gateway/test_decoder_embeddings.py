"""A chat model that was told to pool: vectors beside text, from the same engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.server import Server

TEXTS = ["A cat sits on the mat.", "hi", "The stock market fell sharply. " * 20]


@pytest.fixture(scope="module")
def pooling_server(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--pooling", "mean", "--max-model-len", "256")
    running = Server(str(default_model), *options, log=tmp_path_factory.mktemp("pooling") / "log")
    try:
        yield running
    finally:
        running.stop()


def test_vectors_and_text_come_from_one_engine(pooling_server: Server) -> None:
    server = pooling_server
    assert server.get("/v1/models").json()["data"][0]["tasks"] == ["generate", "embed", "score"]
    reply = server.post("/v1/embeddings", {"input": TEXTS})
    found = np.array([entry["embedding"] for entry in reply.json()["data"]])
    assert found.shape == (3, 576)
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 1, 1], abs=1e-6)
    alone = server.post("/v1/embeddings", {"input": TEXTS[2]}).json()["data"][0]["embedding"]
    assert alone == found[2].tolist()
    chat = server.post(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    )
    assert chat.status == 200
    score = server.post("/v1/score", {"text_1": TEXTS[0], "text_2": TEXTS[0]}).json()["data"][0]["score"]
    assert score == pytest.approx(1, abs=1e-6)


def test_a_prompt_may_fill_the_whole_context(pooling_server: Server) -> None:
    server = pooling_server
    assert server.post("/v1/embeddings", {"input": [5] * 256}).status == 200
    reply = server.post("/v1/embeddings", {"input": [5] * 257})
    assert "input has 257 tokens, but the model reads at most 256" in reply.error["message"]
