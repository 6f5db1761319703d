"""The OpenAPI 3.1 document, generated from the structs that decode and encode the messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.observe.snapshot import Snapshot
from penstock.protocol import sse
from penstock.protocol.admin import (
    BackendList,
    Drained,
    DrainRequest,
    Invalidated,
    InvalidateRequest,
    Registered,
    RegisterRequest,
)
from penstock.protocol.chat import ChatWire
from penstock.protocol.completion import CompletionWire
from penstock.protocol.embeddings import EmbeddingResponse, EmbeddingWire
from penstock.protocol.errors import ErrorResponse
from penstock.protocol.rerank import RerankResponse, RerankWire
from penstock.protocol.responses import (
    ChatChunk,
    ChatCompletion,
    Completion,
    Model,
    ModelList,
    Status,
    Version,
)
from penstock.protocol.score import ScoreResponse, ScoreWire
from penstock.protocol.tokens import DetokenizeRequest, DetokenizeResponse, TokenizeResponse, TokenizeWire

_ERRORS = {
    400: "The request is wrong; `param` names the field.",
    401: "API keys are configured and this request has none, or a wrong one.",
    403: "The key's tenant may not use this model, or it needs an administrator's key.",
    404: "No such model or path.",
    405: "The path does not know this method; `Allow` has the ones it knows.",
    408: "The body took too long to arrive.",
    413: "The body is larger than the server takes.",
    415: "The body is not plain application/json.",
    429: "The queue is full or a limit is reached; `Retry-After` says when to come back.",
    431: "The headers are too large.",
    500: "The server failed on this request.",
    502: "The server that should answer gave no usable answer.",
    503: "The server is draining, or nobody can answer now.",
    504: "The server that should answer took too long.",
}
_GENERATION = (400, 401, 403, 404, 405, 408, 413, 415, 429, 431, 500, 502, 503, 504)
_POST = (400, 401, 404, 405, 408, 413, 415, 431, 500)
_GET = (405, 431, 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One path, with one method."""

    path: str
    method: str
    name: str
    summary: str
    request: Any = None
    response: Any = None  # a struct
    media: str = ""  # of an answer that is none, or may be none
    chunk: Any = None  # of a stream
    errors: tuple[int, ...] = _GET
    open: bool = False  # answers without an API key, unless it has a 401 of its own
    asks: str = ""  # what a model is asked for, by the name backends know it by; "": no model is asked


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        path="/v1/chat/completions",
        method="post",
        name="createChatCompletion",
        asks="createChatCompletion",
        summary="Continue a conversation",
        request=ChatWire,
        response=ChatCompletion,
        chunk=ChatChunk,
        errors=_GENERATION,
    ),
    Operation(
        path="/v1/completions",
        method="post",
        name="createCompletion",
        asks="createCompletion",
        summary="Continue text or token ids",
        request=CompletionWire,
        response=Completion,
        chunk=Completion,
        errors=_GENERATION,
    ),
    Operation(
        path="/v1/embeddings",
        method="post",
        name="createEmbedding",
        asks="createEmbedding",
        summary="Turn texts or token ids into vectors",
        request=EmbeddingWire,
        response=EmbeddingResponse,
        errors=_GENERATION,
    ),
    Operation(
        path="/v1/rerank",
        method="post",
        name="rerank",
        asks="rerank",
        summary="Put documents in order by how well they answer a query",
        request=RerankWire,
        response=RerankResponse,
        errors=_GENERATION,
    ),
    Operation(
        path="/rerank",
        method="post",
        name="rerankShort",
        asks="rerank",
        summary="The same as /v1/rerank",
        request=RerankWire,
        response=RerankResponse,
        errors=_GENERATION,
    ),
    Operation(
        path="/v1/score",
        method="post",
        name="score",
        asks="score",
        summary="How well texts go together, two by two",
        request=ScoreWire,
        response=ScoreResponse,
        errors=_GENERATION,
    ),
    Operation(
        path="/score",
        method="post",
        name="scoreShort",
        asks="score",
        summary="The same as /v1/score",
        request=ScoreWire,
        response=ScoreResponse,
        errors=_GENERATION,
    ),
    Operation(
        path="/v1/responses",
        method="post",
        name="createResponse",
        asks="createResponse",
        summary="OpenAI's Responses, where the model's server has them",
        request=dict,
        response=dict,
        chunk=dict,
        errors=_GENERATION,
    ),
    Operation(
        path="/v1/messages",
        method="post",
        name="createMessage",
        asks="createMessage",
        summary="Anthropic's Messages",
        request=dict,
        response=dict,
        chunk=dict,
        errors=_GENERATION,
    ),
    Operation(
        path="/v1/models",
        method="get",
        name="listModels",
        summary="The names this server answers to",
        response=ModelList,
        errors=(401, *_GET),
    ),
    Operation(
        path="/v1/models/{model}",
        method="get",
        name="retrieveModel",
        summary="One of them",
        response=Model,
        errors=(401, 404, *_GET),
    ),
    Operation(
        path="/models",
        method="get",
        name="listModelsShort",
        summary="The same as /v1/models",
        response=ModelList,
        errors=(401, *_GET),
    ),
    Operation(
        path="/admin/backends",
        method="get",
        name="listBackends",
        summary="The replicas of each model, and what they have (administrators)",
        response=BackendList,
        errors=(401, 403, *_GET),
    ),
    Operation(
        path="/admin/backends",
        method="post",
        name="registerBackend",
        summary="Let a server answer for a model for a while (administrators)",
        request=RegisterRequest,
        response=Registered,
        errors=(*_POST, 403, 429),
    ),
    Operation(
        path="/admin/backends",
        method="delete",
        name="deregisterBackend",
        summary="Take such a server out again (administrators)",
        request=RegisterRequest,
        response=Registered,
        errors=(*_POST, 403),
    ),
    Operation(
        path="/admin/backends/drain",
        method="post",
        name="drainBackend",
        summary="Give a replica nothing new while it finishes what it has, or bring it back (administrators)",
        request=DrainRequest,
        response=Drained,
        errors=(*_POST, 403),
    ),
    Operation(
        path="/admin/cache",
        method="delete",
        name="invalidateCache",
        summary="Give no answer again that was kept so far (administrators)",
        request=InvalidateRequest,
        response=Invalidated,
        errors=(*_POST, 403),
    ),
    Operation(
        path="/tokenize",
        method="post",
        name="tokenize",
        summary="Text or messages to token ids",
        request=TokenizeWire,
        response=TokenizeResponse,
        errors=_POST,
    ),
    Operation(
        path="/detokenize",
        method="post",
        name="detokenize",
        summary="Token ids to text",
        request=DetokenizeRequest,
        response=DetokenizeResponse,
        errors=_POST,
    ),
    Operation(
        path="/health",
        method="get",
        name="health",
        summary="Whether the server and its engine are alive",
        response=Status,
        errors=(*_GET, 503),
        open=True,
    ),
    Operation(
        path="/ready",
        method="get",
        name="ready",
        summary="Whether requests should be sent here: tokens are being made, and no shutdown has begun",
        response=Status,
        errors=(*_GET, 503),
        open=True,
    ),
    Operation(
        path="/version",
        method="get",
        name="version",
        summary="Penstock's version",
        response=Version,
        open=True,
    ),
    Operation(
        path="/metrics",
        method="get",
        name="metrics",
        summary="Prometheus metrics; where there are keys, for administrators and for this machine",
        media="text/plain",
        errors=(401, 403, *_GET, 503),
        open=True,
    ),
    Operation(
        path="/console/state",
        method="get",
        name="consoleState",
        summary="All that the console shows, from traffic to alerts (administrators)",
        response=Snapshot,
        errors=(401, 403, 404, *_GET),
    ),
    Operation(
        path="/console/events",
        method="get",
        name="consoleEvents",
        summary="The same each second, with fewer of the last requests (administrators)",
        chunk=Snapshot,
        errors=(401, 403, 404, *_GET, 503),
    ),
    Operation(
        path="/console/reports/{report}",
        method="get",
        name="consoleReport",
        summary="A page that a benchmark has left for the console (administrators)",
        media="text/html",
        errors=(401, 403, 404, *_GET),
    ),
    Operation(
        path="/console/{file}",
        method="get",
        name="consoleFile",
        summary="The files of the console's page",
        media="*/*",
        errors=(404, *_GET),
        open=True,
    ),
    Operation(
        path="/openapi.json", method="get", name="openapi", summary="This document", response=dict, open=True
    ),
    Operation(
        path="/",
        method="get",
        name="index",
        summary="Where to find what; for browsers, the console",
        response=dict,
        media="text/html",
        open=True,
    ),
)

# Of these the 503 is the answer itself, not an error.
_STATUS_PATHS = ("/health", "/ready")


def document(version: str) -> bytes:
    """The whole document, as JSON."""
    structs = [ErrorResponse]
    for operation in OPERATIONS:
        for struct in (operation.request, operation.response, operation.chunk):
            if struct not in (None, dict) and struct not in structs:
                structs.append(struct)
    _, components = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    content = {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "An OpenAI-compatible API. Every field of OpenAI's and vLLM's API is obeyed, "
            "ignored where that changes nothing, or refused by name; any other field is refused too.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.encode(content)


def _operation(operation: Operation) -> dict[str, Any]:
    success: dict[str, Any] = {}
    if operation.response is not None:
        success["application/json"] = {"schema": _schema(operation.response)}
    if operation.media:
        success[operation.media] = {"schema": {"type": "string"}}
    if operation.chunk is not None:
        success[sse.CONTENT_TYPE.decode().partition(";")[0]] = {
            "schema": {"type": "string"},
            "x-event-schema": _schema(operation.chunk),
        }
    responses: dict[str, Any] = {"200": {"description": "Success.", "content": success}}
    for status in operation.errors:
        answer = Status if status == 503 and operation.path in _STATUS_PATHS else ErrorResponse
        responses[str(status)] = {
            "description": _ERRORS[status],
            "content": {"application/json": {"schema": _schema(answer)}},
        }
    result: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": responses,
        # Optional everywhere: a server without configured keys accepts any bearer, or none.
        "security": [] if operation.open and 401 not in operation.errors else [{}, {"bearer": []}],
    }
    if operation.request is not None:
        result["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _schema(operation.request)}},
        }
    names = re.findall(r"\{(\w+)\}", operation.path)
    if names:
        result["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    return result


def _schema(struct: Any) -> dict[str, str]:
    if struct is dict:
        return {"type": "object"}
    return {"$ref": f"#/components/schemas/{struct.__name__}"}
