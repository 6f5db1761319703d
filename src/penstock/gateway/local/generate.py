"""The two generating endpoints. Both prepare prompts and a shape; the rest is one path."""

from __future__ import annotations

import time
import uuid

from penstock.gateway.call import Call
from penstock.gateway.local.answer import Answer
from penstock.gateway.local.beams import BeamBackend
from penstock.gateway.local.generation import Generation, Submitter
from penstock.gateway.local.prepare import Prepared, prepare_chat, prepare_completion
from penstock.gateway.serving import serving
from penstock.gateway.state import Gateway
from penstock.protocol.chat_shape import ChatShape
from penstock.protocol.completion_shape import CompletionShape
from penstock.protocol.generation import GenerationRequest
from penstock.protocol.shapes import Header, Shape


async def chat_completions(gateway: Gateway, call: Call) -> None:
    arrived = time.monotonic()
    body = await call.body()
    prepared = await gateway.model.apart(len(body), lambda: prepare_chat(gateway.model, body))
    shape = ChatShape(_header("chatcmpl", gateway, prepared.request))
    await _generate(gateway, call, shape, prepared, arrived)


async def completions(gateway: Gateway, call: Call) -> None:
    arrived = time.monotonic()
    body = await call.body()
    prepared = await gateway.model.apart(len(body), lambda: prepare_completion(gateway.model, body))
    shape = CompletionShape(_header("cmpl", gateway, prepared.request))
    await _generate(gateway, call, shape, prepared, arrived)


def _header(prefix: str, gateway: Gateway, request: GenerationRequest) -> Header:
    options = request.stream_options
    return Header(
        id=f"{prefix}-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=gateway.model.check_name(request.model),
        system_fingerprint=gateway.model.fingerprint,
        include_usage=bool(options and options.include_usage),
        running_usage=bool(options and options.include_usage and options.continuous_usage_stats),
    )


async def _generate(gateway: Gateway, call: Call, shape: Shape, prepared: Prepared, arrived: float) -> None:
    # A client chooses its cache_salt: the key in front keeps it among what that key has computed.
    salt = f"{call.tenant}/{prepared.request.cache_salt or ''}"
    requests = prepared.requests(shape.header.id, gateway.model.tokenizer.eos_token_ids, salt)
    backend: Submitter = gateway.backend
    if prepared.beam is not None:
        backend = BeamBackend(gateway.backend, prepared.beam)
    generation = Generation(backend, requests)
    answer = Answer(gateway, generation, shape, prepared, arrived)
    async with serving(gateway, call, generation, answer.count_unfinished):
        if prepared.request.stream:
            await answer.stream(call)
        else:
            await answer.whole(call)
