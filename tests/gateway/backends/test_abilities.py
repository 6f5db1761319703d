"""Servers that lack what they are asked for: who asks in vain does not take them from everybody else."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from penstock.gateway.backends import BackendError, NotOfferedError, abilities, load_watch
from penstock.gateway.backends.relay import RelayBackend
from penstock.protocol.errors import HTTPError
from tests.gateway.backends.asking import ask, backend_of
from tests.gateway.backends.test_load_watch import Paths, until
from tests.gateway.upstream.raw import RawServer, plain

CHAT = {"messages": [{"role": "user", "content": "hello"}]}
ANSWER = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
OK = plain(json.dumps(ANSWER).encode())
CHATS, VECTORS = "/v1/chat/completions", "/v1/embeddings"


def says(status: int, content: Any) -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return plain(body, status=f"{status} X")


async def refused(backend: RelayBackend, asks: str = "createEmbedding") -> HTTPError:
    with pytest.raises(HTTPError) as caught:
        await ask(backend, {"input": "x"} if asks == "createEmbedding" else CHAT, asks)
    return caught.value


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (404, {"detail": "Not Found"}),
        (404, b""),
        (404, b"404 page not found"),
        (404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}),
        (404, {"error": {"message": "Invalid URL (POST /v1/embeddings)", "code": None}}),
        (404, {"error": {"message": "This is a chat model and not supported in the v1/x endpoint."}}),
        (404, {"timestamp": 1, "status": 404, "error": "Not Found", "path": "/v1/embeddings"}),
        (405, {"detail": "Method Not Allowed"}),
        (501, b""),
        (501, {"error": {"code": 501, "message": "This server does not support embeddings."}}),
        (501, {"error": {"message": "The model does not support Embeddings API"}}),
    ],
)
async def test_an_endpoint_that_is_not_there_is_learned_and_nobodys_fault(status: int, content: Any) -> None:
    paths = Paths()
    paths.answers = {VECTORS: says(status, content), CHATS: OK}
    async with RawServer(paths) as server:
        backend = backend_of(server.url)
        error = await refused(backend)
        assert isinstance(error, NotOfferedError)
        assert (error.status, error.code, error.param, error.at_fault) == (
            400, "unsupported_task", "model", False,
        )  # fmt: skip
        assert "createEmbedding" not in backend.operations
        assert "createChatCompletion" in backend.operations
        await backend.close()


@pytest.mark.parametrize(
    "error",
    [
        {"message": "The model `upstream-name` does not exist.", "type": "NotFoundError", "code": 404},
        {"message": "x", "code": "model_not_found"},
        {"message": "model 'upstream-name' not found, try pulling it first"},
        {"message": "The API deployment for this resource does not exist.", "code": "DeploymentNotFound"},
        {"message": "Request for unknown model: 'upstream-name' is not found"},
    ],
)
async def test_a_model_that_the_server_does_not_know_is_the_configurations_fault(error: Any) -> None:
    async with RawServer(Paths(**{CHATS[1:]: says(404, {"error": error})})) as server:
        backend = backend_of(server.url)
        found = await refused(backend, "createChatCompletion")
        assert isinstance(found, BackendError)
        assert (found.status, found.at_fault) == (502, True)
        assert "createChatCompletion" in backend.operations
        await backend.close()


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "Response with id 'the model' not found."),
        (404, "Previous response with id 'resp_1' not found."),
        (501, "logit_bias with speculation is not implemented"),
    ],
)
async def test_what_only_this_request_lacks_is_its_clients_business(status: int, message: str) -> None:
    async with RawServer(Paths(**{CHATS[1:]: says(status, {"error": {"message": message}})})) as server:
        backend = backend_of(server.url)
        error = await refused(backend, "createChatCompletion")
        assert not isinstance(error, BackendError)
        assert (error.status, str(error)) == (400, message)
        assert "createChatCompletion" in backend.operations
        await backend.close()


async def test_an_endpoint_that_was_there_and_is_gone_counts() -> None:
    """As it does while a proxy has nobody behind it."""
    paths = Paths()
    paths.answers = {CHATS: OK}
    async with RawServer(paths) as server:
        backend = backend_of(server.url)
        await ask(backend, CHAT)
        paths.answers.clear()
        error = await refused(backend, "createChatCompletion")
        assert isinstance(error, BackendError)
        assert (error.status, error.at_fault) == (502, True)
        assert "createChatCompletion" in backend.operations
        await backend.close()


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_good_for_some_endpoints_is_not_blamed_for_others(status: int) -> None:
    paths = Paths()
    paths.answers = {VECTORS: says(status, b""), CHATS: OK}
    async with RawServer(paths) as server:
        backend = backend_of(server.url)
        before = await refused(backend)
        await ask(backend, CHAT)
        after = await refused(backend)
        paths.answers[CHATS] = says(status, b"")
        itself = await refused(backend, "createChatCompletion")
        for error, at_fault in ((before, True), (after, False), (itself, True)):
            assert isinstance(error, BackendError)
            assert (error.status, error.at_fault) == (502, at_fault)
        await backend.close()


async def test_what_was_lacking_is_asked_for_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "LACKS_SECONDS", 0.0)
    paths = Paths()
    async with RawServer(paths) as server:
        backend = backend_of(server.url)
        await refused(backend)
        assert "createEmbedding" in backend.operations
        await backend.close()


async def test_a_server_that_comes_back_may_offer_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_watch, "TICK_SECONDS", 0.01)
    paths = Paths(health=plain(b""))
    async with RawServer(paths) as server:
        backend = backend_of(server.url, "vllm")
        await backend.start()
        await until(lambda: backend.health.state(time.monotonic()) == "healthy")
        await until(lambda: backend._watch._healthy)
        await refused(backend)
        assert "createEmbedding" not in backend.operations
        backend.health.died("as if", time.monotonic())
        await until(lambda: "createEmbedding" in backend.operations)
        await backend.close()
