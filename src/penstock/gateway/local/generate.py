"""The two generating endpoints. Both prepare prompts and a shape; the rest is one path."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from penstock.gateway.exchange import Exchange
from penstock.gateway.local.answer import Answer
from penstock.gateway.local.beams import BeamBackend
from penstock.gateway.local.endings import endings_counted
from penstock.gateway.local.generation import Generation, Submitter
from penstock.gateway.local.model import ServedModel
from penstock.gateway.local.prepare import Prepared
from penstock.gateway.local.tokens import TokenSource
from penstock.observe.metrics import ModelMetrics
from penstock.protocol.chat_shape import ChatShape
from penstock.protocol.completion_shape import CompletionShape
from penstock.protocol.shapes import Header, Shape


async def chat(
    model: ServedModel, source: TokenSource, metrics: ModelMetrics, exchange: Exchange, prepared: Prepared
) -> None:
    await _generate(model, source, metrics, exchange, prepared, ChatShape, "chatcmpl")


async def completion(
    model: ServedModel, source: TokenSource, metrics: ModelMetrics, exchange: Exchange, prepared: Prepared
) -> None:
    await _generate(model, source, metrics, exchange, prepared, CompletionShape, "cmpl")


async def _generate(
    model: ServedModel,
    source: TokenSource,
    metrics: ModelMetrics,
    exchange: Exchange,
    prepared: Prepared,
    shaped: Callable[[Header], Shape],
    prefix: str,
) -> None:
    shape = shaped(_header(prefix, model, exchange, prepared))
    # A beam search asks for scores of its own, and tells its answers' in the end.
    watch = exchange.watch if prepared.beam is None else None
    requests = prepared.requests(
        shape.header.id,
        model.tokenizer.eos_token_ids,
        exchange.salt,
        exchange.priority,
        scored=watch is not None,
    )
    submitter: Submitter = source if prepared.beam is None else BeamBackend(source, prepared.beam)
    generation = Generation(submitter, requests)
    answer = Answer(model, metrics, generation, shape, prepared, exchange.arrived, watch)
    try:
        with endings_counted(exchange, lambda: generation.begun, answer.count_unfinished):
            generation.start()
            if prepared.request.stream:
                await answer.stream(exchange)
            else:
                await answer.whole(exchange)
    finally:
        answer.note(exchange.record)
        await generation.close()


def _header(prefix: str, model: ServedModel, exchange: Exchange, prepared: Prepared) -> Header:
    options = prepared.request.stream_options
    return Header(
        id=f"{prefix}-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=exchange.model,
        system_fingerprint=model.fingerprint,
        include_usage=bool(options and options.include_usage),
        running_usage=bool(options and options.include_usage and options.continuous_usage_stats),
    )
