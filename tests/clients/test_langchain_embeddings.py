"""LangChain's embeddings against a server of the embedding model, started as a user would."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.clients.environments import ran
from tests.server import Server

MODEL = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def session(embedding_server: Server) -> dict[str, Any]:
    return ran("langchain-openai", "langchain_embeddings_session.py", embedding_server.url, MODEL)


def likeness(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def test_a_query_is_a_vector_of_length_one(session: dict[str, Any]) -> None:
    vector = session["query"]
    assert len(vector) == 384
    assert likeness(vector, vector) == pytest.approx(1, abs=1e-6)


def test_documents_come_in_their_order_and_alike_texts_are_near(session: dict[str, Any]) -> None:
    cat, kitten, market = session["documents"]
    assert cat == session["query"]
    assert likeness(cat, kitten) > 0.5 > likeness(cat, market)


def test_the_async_methods_give_the_same(session: dict[str, Any]) -> None:
    assert session["async"] == session["documents"]


def test_fewer_dimensions_are_the_first_ones_made_length_one(session: dict[str, Any]) -> None:
    shorter, whole = session["shorter"], session["query"][:64]
    size = math.sqrt(likeness(whole, whole))
    assert shorter == pytest.approx([number / size for number in whole], abs=1e-6)


def test_token_ids_are_embedded_as_they_are(session: dict[str, Any], embedding_server: Server) -> None:
    ids = [[2000 + byte for byte in text.encode()] for text in ("cat", "dog")]
    reply = embedding_server.post(
        "/v1/embeddings", {"model": MODEL, "input": ids, "encoding_format": "float"}
    )
    direct = [entry["embedding"] for entry in reply.json()["data"]]
    for ours, theirs in zip(direct, session["ids"], strict=True):
        assert theirs == pytest.approx(ours, abs=1e-6)


def test_ids_of_another_tokenizer_are_refused_and_not_guessed_at(session: dict[str, Any]) -> None:
    error = session["unknown ids"]
    assert "openai.BadRequestError" in error["raised"]
    assert "token id 100099" in error["message"]
    assert "30522 tokens" in error["message"]


def test_an_embedding_model_asked_to_chat_says_what_it_is_for(session: dict[str, Any]) -> None:
    error = session["chat"]
    assert "openai.BadRequestError" in error["raised"]
    assert error["status_code"] == 400
    assert MODEL in error["message"]
