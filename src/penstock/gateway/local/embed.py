"""The endpoints that give vectors and scores. One bad text refuses a request before anything is computed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TypeVar

from penstock.engine.vectors import Vector, check_dimensions, similarity
from penstock.gateway.call import Call
from penstock.gateway.local.model import ServedModel
from penstock.gateway.local.pooled import pool
from penstock.gateway.state import Gateway
from penstock.protocol.completion import check_prompt_ids
from penstock.protocol.embeddings import (
    EmbeddingRequest,
    encode_embeddings,
    parse_embeddings,
)
from penstock.protocol.pooled import PooledRequest, PooledUsage
from penstock.protocol.rerank import (
    RerankDocument,
    RerankRequest,
    RerankResponse,
    RerankResult,
    parse_rerank,
    ranked,
)
from penstock.protocol.score import Place, Score, ScoreRequest, ScoreResponse, parse_score
from penstock.text.reading import Read

R = TypeVar("R", bound=PooledRequest)


async def embeddings(gateway: Gateway, call: Call) -> None:
    pooled = await _pooled(gateway, call, _read_embeddings)
    if pooled is None:
        return
    request, texts, vectors = pooled
    model, tokens = gateway.model.check_name(request.model), sum(len(text.ids) for text in texts)
    size = sum(vector.nbytes for vector in vectors)
    await call.answer(
        await gateway.model.written(size, lambda: encode_embeddings(request, vectors, model, tokens))
    )


async def rerank(gateway: Gateway, call: Call) -> None:
    pooled = await _pooled(gateway, call, _read_rerank)
    if pooled is None:
        return
    request, texts, vectors = pooled
    if gateway.model.reads_pairs:
        scores = [float(vector[0]) for vector in vectors]
    else:
        scores = [similarity(vectors[0], document) for document in vectors[1:]]
    documents = request.texts()
    results = [
        RerankResult(index=index, relevance_score=scores[index]) for index in ranked(scores, request.top_n)
    ]
    if request.return_documents is not False:
        for result in results:
            result.document = RerankDocument(documents[result.index])
    await call.answer_json(
        RerankResponse(
            id=f"rerank-{uuid.uuid4().hex}",
            model=gateway.model.check_name(request.model),
            results=results,
            usage=_usage(texts),
        )
    )


async def score(gateway: Gateway, call: Call) -> None:
    pooled = await _pooled(gateway, call, _read_score)
    if pooled is None:
        return
    request, texts, vectors = pooled
    scores = _scores(gateway.model, request, vectors)
    await call.answer_json(
        ScoreResponse(
            id=f"score-{uuid.uuid4().hex}",
            created=int(time.time()),
            model=gateway.model.check_name(request.model),
            data=[Score(index=index, score=value) for index, value in enumerate(scores)],
            usage=_usage(texts),
        )
    )


async def _pooled(
    gateway: Gateway, call: Call, read: Callable[[ServedModel, bytes], tuple[R, list[Read]]]
) -> tuple[R, list[Read], list[Vector]] | None:
    """The request, its texts, and a vector or score of each; None if the client has left."""
    arrived = time.monotonic()
    body = await call.body()
    request, texts = await gateway.model.apart(len(body), lambda: read(gateway.model, body))
    vectors = await pool(gateway, call, texts, request, arrived)
    return None if vectors is None else (request, texts, vectors)


def _read_embeddings(model: ServedModel, body: bytes) -> tuple[EmbeddingRequest, list[Read]]:
    request = parse_embeddings(body)
    model.check_name(request.model)
    check_dimensions(request.dimensions, model.embedding_size)
    keep, framed = request.truncate_prompt_tokens, request.add_special_tokens is not False
    texts = []
    for where, value in request.inputs():
        if isinstance(value, str):
            texts.append(_read(model, (where, value), request, framed=framed))
        else:
            texts.append(model.reader.token_ids(value, where, keep=keep))
            check_prompt_ids(value, model.vocab_size, where)
    return request, texts


def _read_rerank(model: ServedModel, body: bytes) -> tuple[RerankRequest, list[Read]]:
    request = parse_rerank(body)
    model.check_name(request.model)
    query = ("query", request.query)
    documents = [(f"documents[{index}]", text) for index, text in enumerate(request.texts())]
    if model.reads_pairs:
        return request, [_read_pair(model, query, document, request) for document in documents]
    return request, [_read(model, place, request) for place in (query, *documents)]


def _read_score(model: ServedModel, body: bytes) -> tuple[ScoreRequest, list[Read]]:
    request = parse_score(body)
    model.check_name(request.model)
    pairs = request.pairs()
    if model.reads_pairs:
        return request, [_read_pair(model, left, right, request) for left, right in pairs]
    # Each text is read once, however many it is compared with.
    places = dict.fromkeys(place for pair in pairs for place in pair)
    return request, [_read(model, place, request) for place in places]


def _scores(model: ServedModel, request: ScoreRequest, vectors: list[Vector]) -> list[float]:
    if model.reads_pairs:
        return [float(vector[0]) for vector in vectors]
    pairs = request.pairs()
    places = dict.fromkeys(place for pair in pairs for place in pair)
    by_place = dict(zip(places, vectors, strict=True))
    return [similarity(by_place[left], by_place[right]) for left, right in pairs]


def _read(model: ServedModel, place: Place, request: PooledRequest, *, framed: bool = True) -> Read:
    where, text = place
    if request.truncate_prompt_tokens is None:
        model.check_characters(text, where)
    return model.reader.text(text, where, framed=framed, keep=request.truncate_prompt_tokens)


def _read_pair(model: ServedModel, left: Place, right: Place, request: PooledRequest) -> Read:
    names, texts = zip(left, right, strict=True)
    return model.reader.pair(texts[0], texts[1], (names[0], names[1]), keep=request.truncate_prompt_tokens)


def _usage(texts: list[Read]) -> PooledUsage:
    count = sum(len(text.ids) for text in texts)
    return PooledUsage(prompt_tokens=count, total_tokens=count)
