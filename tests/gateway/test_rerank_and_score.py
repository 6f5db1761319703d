"""Rerank and score: by the likeness of vectors, or by a cross-encoder's head."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.encode.encoders import save
from tests.server import Server

QUERY = "How does water get to the turbine?"
DOCUMENTS = [
    "Bread is baked in an oven.",
    "A penstock carries water down to the turbine.",
    "Turbines need falling water.",
]


@pytest.fixture(scope="module")
def cross_folder(embedding_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of random weights with a real tokenizer."""
    path = tmp_path_factory.mktemp("cross") / "tiny-cross-encoder"
    shape = {"vocab_size": 30522, "hidden_size": 32, "num_hidden_layers": 2, "max_position_embeddings": 64}
    save(path, "Bert", "ForSequenceClassification", num_labels=1, **shape)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(embedding_model / name, path / name)
    return path


@pytest.fixture(scope="module")
def cross_server(cross_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(str(cross_folder), log=tmp_path_factory.mktemp("cross-server") / "log")
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def reference(cross_folder: Path) -> Any:
    from transformers import AutoTokenizer, BertForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(cross_folder)
    model = BertForSequenceClassification.from_pretrained(cross_folder).eval()

    def score(first: str, second: str) -> float:
        with torch.no_grad():
            return float(torch.sigmoid(model(**tokenizer(first, second, return_tensors="pt")).logits)[0, 0])

    return score


def post(server: Server, path: str, **body: Any) -> Any:
    reply = server.post(path, body)
    assert reply.status == 200, reply.body
    return reply.json()


def vectors(server: Server, texts: list[str]) -> Any:
    answer = post(server, "/v1/embeddings", input=texts)
    return np.array([entry["embedding"] for entry in answer["data"]])


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
def test_documents_come_back_best_first(embedding_server: Server, path: str) -> None:
    answer = post(embedding_server, path, query=QUERY, documents=DOCUMENTS)
    assert [result["index"] for result in answer["results"]] == [2, 1, 0]
    scores = [result["relevance_score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    query, *documents = vectors(embedding_server, [QUERY, *DOCUMENTS])
    for result in answer["results"]:
        assert result["relevance_score"] == pytest.approx(float(query @ documents[result["index"]]), abs=1e-5)
        assert result["document"] == {"text": DOCUMENTS[result["index"]]}
    assert answer["model"] == "all-MiniLM-L6-v2"
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] > 20


def test_only_the_best_are_given_when_asked_for(embedding_server: Server) -> None:
    objects = [{"text": text} for text in DOCUMENTS]
    answer = post(
        embedding_server, "/rerank", query=QUERY, documents=objects, top_n=1, return_documents=False
    )
    assert [set(result) for result in answer["results"]] == [{"index", "relevance_score"}]
    assert answer["results"][0]["index"] == 2
    for top_n in (0, 9, None):
        assert (
            len(post(embedding_server, "/rerank", query=QUERY, documents=objects, top_n=top_n)["results"])
            == 3
        )


def test_equal_documents_keep_their_order(embedding_server: Server) -> None:
    answer = post(embedding_server, "/rerank", query="same", documents=["x", "same", "same", "same"])
    assert [result["index"] for result in answer["results"]] == [1, 2, 3, 0]
    assert answer["results"][0]["relevance_score"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("left", "right"),
    [("a cat", "a kitten"), ("a cat", ["a kitten", "a car"]), (["cat", "dog"], ["car", "pet"])],
)
def test_scores_are_the_cosines_of_vectors(embedding_server: Server, left: Any, right: Any) -> None:
    answer = post(embedding_server, "/v1/score", text_1=left, text_2=right)
    many = [right] if isinstance(right, str) else right
    firsts = [left] * len(many) if isinstance(left, str) else left
    expected = [
        a @ b for a, b in zip(vectors(embedding_server, firsts), vectors(embedding_server, many), strict=True)
    ]
    assert [entry["index"] for entry in answer["data"]] == list(range(len(many)))
    assert [entry["score"] for entry in answer["data"]] == pytest.approx(expected, abs=1e-5)
    assert post(embedding_server, "/score", text_1=left, text_2=right)["data"] == answer["data"]


def test_a_cross_encoder_scores_pairs_with_its_head(cross_server: Server, reference: Any) -> None:
    answer = post(cross_server, "/v1/rerank", query=QUERY, documents=DOCUMENTS)
    for result in answer["results"]:
        expected = reference(QUERY, DOCUMENTS[result["index"]])
        assert result["relevance_score"] == pytest.approx(expected, abs=1e-4)
    scores = [result["relevance_score"] for result in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    data = post(cross_server, "/v1/score", text_1=QUERY, text_2=DOCUMENTS)["data"]
    assert [entry["score"] for entry in data] == pytest.approx(
        [reference(QUERY, d) for d in DOCUMENTS], abs=1e-4
    )


def test_of_a_pair_that_is_too_long_the_second_text_is_cut(cross_server: Server, reference: Any) -> None:
    body = {"query": "blue sky", "documents": ["word " * 100]}
    reply = cross_server.post("/rerank", body)
    assert reply.status == 400
    assert "documents[0] has 105 tokens, but the model reads at most 64" in reply.error["message"]
    [result] = post(cross_server, "/rerank", **body, truncate_prompt_tokens=-1)["results"]
    assert result["relevance_score"] == pytest.approx(reference("blue sky", "word " * 59), abs=1e-4)
    refused = cross_server.post("/rerank", {**body, "truncate_prompt_tokens": 5})
    assert "needs at least 6" in refused.error["message"]


def test_a_cross_encoder_gives_neither_embeddings_nor_text(cross_server: Server) -> None:
    reply = cross_server.post("/v1/embeddings", {"input": "x"})
    assert reply.status == 400
    assert reply.error["message"].endswith("(/v1/rerank, /v1/score) and gives no embeddings.")
    reply = cross_server.post("/v1/completions", {"prompt": "x"})
    assert (reply.status, reply.error["code"]) == (400, "unsupported_task")
    assert reply.error["message"].endswith("and gives no text.")
    assert cross_server.get("/v1/models").json()["data"][0]["tasks"] == ["score"]
    assert cross_server.get("/ready").status == 200


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("/rerank", {"query": "", "documents": ["a"]}, "query is empty", "query"),
    ("/rerank", {"query": "a", "documents": []}, "documents is empty; send at least one text.", "documents"),
    ("/rerank", {"query": "a", "documents": ["b", ""]}, "documents[1] is empty", "documents[1]"),
    (
        "/rerank",
        {"query": "a", "documents": ["b"] * 2049},
        "2049 entries; a request takes at most 2048",
        "documents",
    ),
    ("/rerank", {"query": "a", "documents": [{"title": "b"}]}, "Unknown field", "documents[0].title"),
    (
        "/rerank",
        {"query": "a", "documents": ["b"], "top_n": -1},
        "top_n must be at least 0, got -1.",
        "top_n",
    ),
    ("/rerank", {"query": "word " * 300, "documents": ["b"]}, "query has 302 tokens", "query"),
    ("/rerank", {"documents": ["b"]}, "query is required.", "query"),
    (
        "/rerank",
        {"query": "a", "documents": ["b"], "max_tokens_per_doc": 9},
        "Use truncate_prompt_tokens.",
        "max_tokens_per_doc",
    ),
    ("/score", {"text_1": "a"}, "text_2 is required.", "text_2"),
    ("/score", {"text_1": [], "text_2": "a"}, "text_1 is empty", "text_1"),
    (
        "/score",
        {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]},
        "text_1 has 2 texts and text_2 has 3",
        "text_1",
    ),
    (
        "/score",
        {"text_1": ["a", "b"], "text_2": "c"},
        "text_1 must be one text, or as many as text_2 has",
        "text_1",
    ),
    ("/score", {"text_1": "a", "text_2": ["b", ""]}, "text_2[1] is empty", "text_2[1]"),
]


@pytest.mark.parametrize(("path", "body", "message", "param"), BAD)
def test_what_is_wrong_is_said_with_its_place(
    embedding_server: Server, path: str, body: dict[str, Any], message: str, param: str
) -> None:
    reply = embedding_server.post(path, body)
    assert reply.status == 400, reply.body
    assert message in reply.error["message"]
    assert reply.error["param"] == param


def test_a_chat_model_says_how_it_could_give_vectors(server: Server, model_name: str) -> None:
    for path, body in (
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/rerank", {"query": "x", "documents": ["y"]}),
        ("/score", {"text_1": "x", "text_2": "y"}),
    ):
        reply = server.post(path, body)
        assert (reply.status, reply.error["code"]) == (400, "unsupported_task")
        expected = (
            f"{model_name} is a chat model; start it with --pooling mean (or last) to serve embeddings."
        )
        assert reply.error["message"] == expected


def test_an_encoder_says_what_it_is_for_when_asked_for_text(embedding_server: Server) -> None:
    messages = [{"role": "user", "content": "x"}]
    for path, body in (
        ("/v1/chat/completions", {"messages": messages}),
        ("/v1/completions", {"prompt": "x"}),
        ("/tokenize", {"messages": messages}),
    ):
        reply = embedding_server.post(path, body)
        assert (reply.status, reply.error["code"]) == (400, "unsupported_task")
        assert "gives embeddings and scores (/v1/embeddings," in reply.error["message"]


def test_json_of_a_whole_exchange_is_as_other_servers_give_it(embedding_server: Server) -> None:
    answer = post(embedding_server, "/v1/score", text_1="a", text_2="b")
    assert set(answer) == {"id", "object", "created", "model", "data", "usage"}
    assert answer["object"] == "list"
    assert [set(entry) for entry in answer["data"]] == [{"index", "object", "score"}]
    assert set(answer["usage"]) == {"prompt_tokens", "total_tokens", "latency_ms"}
