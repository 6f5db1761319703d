"""The endpoints that do not generate."""

from __future__ import annotations

import functools

import msgspec

from penstock import __version__
from penstock.config.tiers import AUTO
from penstock.errors import InvalidRequestError
from penstock.gateway.accounts.keys import Caller
from penstock.gateway.admin import check_admin, from_here
from penstock.gateway.call import Call
from penstock.gateway.console import routes
from penstock.gateway.inquiry import Inquiry
from penstock.gateway.local.model import ServedModel
from penstock.gateway.state import Gateway
from penstock.observe.catalogue import CONTENT_TYPE
from penstock.protocol import openapi
from penstock.protocol.responses import Model, ModelList, Status, Version
from penstock.protocol.tokens import (
    DetokenizeResponse,
    TokenizeResponse,
    parse_detokenize,
    parse_tokenize,
)


async def list_models(gateway: Gateway, call: Call, caller: Caller) -> None:
    await call.answer_json(ModelList(data=_models(gateway, caller)))


async def retrieve_model(gateway: Gateway, call: Call, caller: Caller) -> None:
    name = call.scope["path_params"]["model"]
    gateway.find(name, caller)
    [model] = [model for model in _models(gateway, caller) if model.id == name]
    await call.answer_json(model)


def _models(gateway: Gateway, caller: Caller) -> list[Model]:
    """What the caller may ask for by name, the choice among them included."""
    found = [model for deployment in gateway.models(caller) for model in deployment.describe()]
    choice = gateway.routable(caller)
    if choice:
        contexts = [deployment.context for deployment in choice]
        longest = None if None in contexts else max(context or 0 for context in contexts)
        created = max(deployment.created for deployment in choice)
        found.append(Model(id=AUTO, created=created, max_model_len=longest, root=AUTO, tasks=["generate"]))
    return found


async def tokenize(gateway: Gateway, call: Call, caller: Caller) -> None:
    body = await call.body()
    model = _tokenizer(gateway, body, caller)
    await call.answer(await model.apart(len(body), lambda: _tokenized(model, body)))


def _tokenizer(gateway: Gateway, body: bytes, caller: Caller) -> ServedModel:
    """The model whose tokenizer is asked for; one that runs elsewhere has none here."""
    deployment = gateway.named(Inquiry("tokenize", body).model, caller)
    if deployment.served is None:
        raise InvalidRequestError(
            f"The model {deployment.name} runs on another server, and its tokenizer is not known here.",
            param="model",
            code="unsupported_task",
        )
    return deployment.served


def _tokenized(model: ServedModel, body: bytes) -> bytes:
    request = parse_tokenize(body)
    if request.prompt is not None:
        ids = model.encode_prompt(request.prompt, special=request.add_special_tokens)
    else:
        model.check_task("generate")
        model.check_messages(len(request.messages or ()))
        ids = model.encode_chat(request.template_messages(), request.template_options())
    texts = [model.tokenizer.token_text(token) for token in ids] if request.return_token_strs else None
    return msgspec.json.encode(
        TokenizeResponse(count=len(ids), max_model_len=model.context, tokens=ids, token_strs=texts)
    )


async def detokenize(gateway: Gateway, call: Call, caller: Caller) -> None:
    body = await call.body()
    model = _tokenizer(gateway, body, caller)
    await call.answer(await model.apart(len(body), lambda: _detokenized(model, body)))


def _detokenized(model: ServedModel, body: bytes) -> bytes:
    request = parse_detokenize(body)
    for number, token in enumerate(request.tokens):
        if token >= model.vocab_size:
            raise InvalidRequestError(
                f"tokens[{number}] is {token}, but the vocabulary has {model.vocab_size} tokens.",
                param=f"tokens[{number}]",
            )
    prompt = model.tokenizer.decode(request.tokens, skip_special=False)
    return msgspec.json.encode(DetokenizeResponse(prompt=prompt))


async def health(gateway: Gateway, call: Call, caller: Caller) -> None:
    """The process lives and its loop goes round, or nobody would answer. Replicas are `/ready`'s business."""
    await call.answer_json(Status("ok"))


async def ready(gateway: Gateway, call: Call, caller: Caller) -> None:
    reason = "The server is shutting down." if gateway.draining else gateway.not_ready()
    if reason is None:
        await call.answer_json(Status("ready"))
    else:
        await call.answer_json(Status("not ready", reason), status=503)


async def version(gateway: Gateway, call: Call, caller: Caller) -> None:
    await call.answer_json(Version(__version__))


async def metrics(gateway: Gateway, call: Call, caller: Caller) -> None:
    """Tenants, what they spend and replicas' addresses are on the page: where there are keys it is for
    administrators, and for a Prometheus on this machine."""
    if gateway.keys.locked and not gateway.config.metrics.open and not from_here(call):
        check_admin(gateway, call, gateway.keys.check(call.headers))
    await call.answer(await gateway.scrape(), content_type=CONTENT_TYPE.encode())


async def document(gateway: Gateway, call: Call, caller: Caller) -> None:
    await call.answer(_document())


async def index(gateway: Gateway, call: Call, caller: Caller) -> None:
    if routes.wants_page(gateway, call):
        await routes.console_page(gateway, call)
        return
    paths = list(dict.fromkeys(operation.path for operation in openapi.OPERATIONS if operation.path != "/"))
    about = {"name": "penstock", "version": __version__, "documentation": "/openapi.json", "paths": paths}
    await call.answer(msgspec.json.encode(about), fields=routes.BY_ACCEPT)


@functools.cache
def _document() -> bytes:
    return openapi.document(__version__)
