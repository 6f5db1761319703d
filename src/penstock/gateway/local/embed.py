"""The endpoints that give vectors and scores. One bad text refuses a request before anything is computed."""

from __future__ import annotations

import time
import uuid

import msgspec

from penstock.engine.vectors import Vector, check_dimensions, similarity
from penstock.gateway.exchange import Exchange
from penstock.gateway.local.model import ServedModel
from penstock.gateway.local.pooled import PooledPrepared, pool
from penstock.gateway.local.tokens import TokenSource
from penstock.observe.metrics import ModelMetrics
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
from penstock.protocol.shapes import UsageCount
from penstock.text.reading import Read


async def embeddings(
    model: ServedModel,
    source: TokenSource,
    metrics: ModelMetrics,
    exchange: Exchange,
    prepared: PooledPrepared[EmbeddingRequest],
) -> None:
    vectors = await pool(source, metrics, exchange, prepared)
    request, tokens = prepared.request, prepared.prompt_tokens
    size = sum(vector.nbytes for vector in vectors)
    body = await model.written(size, lambda: encode_embeddings(request, vectors, exchange.model, tokens))
    await exchange.answer(body, UsageCount(tokens))


async def rerank(
    model: ServedModel,
    source: TokenSource,
    metrics: ModelMetrics,
    exchange: Exchange,
    prepared: PooledPrepared[RerankRequest],
) -> None:
    vectors = await pool(source, metrics, exchange, prepared)
    request = prepared.request
    if model.reads_pairs:
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
    answer = RerankResponse(
        id=f"rerank-{uuid.uuid4().hex}",
        model=exchange.model,
        results=results,
        usage=_usage(prepared),
    )
    await exchange.answer(msgspec.json.encode(answer), UsageCount(prepared.prompt_tokens))


async def score(
    model: ServedModel,
    source: TokenSource,
    metrics: ModelMetrics,
    exchange: Exchange,
    prepared: PooledPrepared[ScoreRequest],
) -> None:
    vectors = await pool(source, metrics, exchange, prepared)
    scores = _scores(model, prepared.request, vectors)
    answer = ScoreResponse(
        id=f"score-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=exchange.model,
        data=[Score(index=index, score=value) for index, value in enumerate(scores)],
        usage=_usage(prepared),
    )
    await exchange.answer(msgspec.json.encode(answer), UsageCount(prepared.prompt_tokens))


def prepare_embeddings(model: ServedModel, body: bytes) -> PooledPrepared[EmbeddingRequest]:
    request = parse_embeddings(body)
    check_dimensions(request.dimensions, model.embedding_size)
    keep, framed = request.truncate_prompt_tokens, request.add_special_tokens is not False
    texts = []
    for where, value in request.inputs():
        if isinstance(value, str):
            texts.append(_read(model, (where, value), request, framed=framed))
        else:
            texts.append(model.reader.token_ids(value, where, keep=keep))
            check_prompt_ids(value, model.vocab_size, where)
    return PooledPrepared(request, texts)


def prepare_rerank(model: ServedModel, body: bytes) -> PooledPrepared[RerankRequest]:
    request = parse_rerank(body)
    query = ("query", request.query)
    documents = [(f"documents[{index}]", text) for index, text in enumerate(request.texts())]
    if model.reads_pairs:
        return PooledPrepared(
            request, [_read_pair(model, query, document, request) for document in documents]
        )
    return PooledPrepared(request, [_read(model, place, request) for place in (query, *documents)])


def prepare_score(model: ServedModel, body: bytes) -> PooledPrepared[ScoreRequest]:
    request = parse_score(body)
    pairs = request.pairs()
    if model.reads_pairs:
        return PooledPrepared(request, [_read_pair(model, left, right, request) for left, right in pairs])
    # Each text is read once, however many it is compared with.
    places = dict.fromkeys(place for pair in pairs for place in pair)
    return PooledPrepared(request, [_read(model, place, request) for place in places])


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


def _usage(prepared: PooledPrepared[PooledRequest]) -> PooledUsage:
    count = prepared.prompt_tokens
    return PooledUsage(prompt_tokens=count, total_tokens=count)
