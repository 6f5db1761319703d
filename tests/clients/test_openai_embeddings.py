"""Embeddings with the official SDK, unmodified, against a server started as a user would."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.server import Server

MODEL = "all-MiniLM-L6-v2"
TEXTS = ["A cat sits on the mat.", "A kitten is sitting on a rug.", "The stock market fell sharply."]


@pytest.fixture(scope="module")
def client(embedding_server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{embedding_server.url}/v1", api_key="anything", max_retries=0) as sdk:
        yield sdk


def test_vectors_have_length_one_and_tell_what_is_alike(client: OpenAI) -> None:
    answer = client.embeddings.create(model=MODEL, input=TEXTS)  # asks for base64 and decodes it
    cat, kitten, market = (np.array(item.embedding) for item in answer.data)
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert [len(item.embedding) for item in answer.data] == [384] * 3
    assert np.linalg.norm(cat) == pytest.approx(1, abs=1e-6)
    assert cat @ kitten > 0.5 > cat @ market
    assert answer.model == MODEL
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 27


def test_numbers_and_base64_are_the_same_vector(client: OpenAI) -> None:
    packed = client.embeddings.create(model=MODEL, input=TEXTS[0])
    plain = client.embeddings.create(model=MODEL, input=TEXTS[0], encoding_format="float")
    assert packed.data[0].embedding == plain.data[0].embedding


def test_token_ids_stand_for_their_text(client: OpenAI, embedding_server: Server) -> None:
    ids = [embedding_server.post("/tokenize", {"prompt": text}).json()["tokens"] for text in TEXTS[:2]]
    expected = client.embeddings.create(model=MODEL, input=TEXTS[:2])
    several = client.embeddings.create(model=MODEL, input=ids)
    assert [item.embedding for item in several.data] == [item.embedding for item in expected.data]
    one = client.embeddings.create(model=MODEL, input=ids[1])
    assert one.data[0].embedding == expected.data[1].embedding


def test_fewer_dimensions_are_the_first_ones_made_length_one(client: OpenAI) -> None:
    whole = np.array(client.embeddings.create(model=MODEL, input=TEXTS[0]).data[0].embedding)[:64]
    short = client.embeddings.create(model=MODEL, input=TEXTS[0], dimensions=64).data[0].embedding
    assert short == pytest.approx(list(whole / np.linalg.norm(whole)), abs=1e-6)


async def test_many_requests_at_once_get_what_each_asked_for(
    embedding_server: Server, client: OpenAI
) -> None:
    texts = [f"{text} {number}" for number in range(8) for text in TEXTS]
    expected = client.embeddings.create(model=MODEL, input=texts)
    async with AsyncOpenAI(base_url=f"{embedding_server.url}/v1", api_key="x", max_retries=0) as sdk:
        answers = await asyncio.gather(*(sdk.embeddings.create(model=MODEL, input=text) for text in texts))
    assert [a.data[0].embedding for a in answers] == [item.embedding for item in expected.data]


def test_mistakes_raise_the_sdks_own_errors(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="between 1 and the model's 384") as bad:
        client.embeddings.create(model=MODEL, input="x", dimensions=385)
    assert bad.value.param == "dimensions"
    with pytest.raises(openai.BadRequestError, match="and no text"):
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="text-embedding-3-small", input="x")
