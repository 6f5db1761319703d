"""Anthropic as a backend, against a server that speaks its documented protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from penstock.config.sections import BackendConfig, HealthConfig, ModelConfig, TimeoutConfig
from penstock.errors import ConfigError, InvalidRequestError
from penstock.gateway.backends import BackendError
from penstock.gateway.backends.anthropic import AnthropicBackend
from penstock.protocol.errors import HTTPError
from penstock.protocol.sse_reader import EventReader
from tests.gateway.upstream.raw import Peer, RawServer, always, chunked
from tests.servers.anthropic import KEY, MODEL, AnthropicServer, Fault, event
from tests.servers.asking import Asked, ask, asked

CHAT = {"model": "ours", "messages": [{"role": "user", "content": "one two three"}]}
STREAMED = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
NATIVE = {**CHAT, "max_tokens": 50}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as running:
        assert isinstance(running, AnthropicServer)
        yield running


def backend_of(server: AnthropicServer | RawServer, **fields: Any) -> AnthropicBackend:
    config = BackendConfig(
        **{"name": "a", "kind": "anthropic", "url": server.url, "api_key": KEY, "model": MODEL, **fields}
    )
    return AnthropicBackend(ModelConfig(name="ours"), config, HealthConfig())


@pytest.fixture
async def backend(server: AnthropicServer) -> AsyncIterator[AnthropicBackend]:
    made = backend_of(server)
    await made.start()
    yield made
    await made.close()


def saying(text: str, **fields: Any) -> dict[str, Any]:
    return {**CHAT, "messages": [{"role": "user", "content": text}], **fields}


def events(answer: Asked) -> list[Any]:
    found = EventReader().feed(answer.body)
    decoded = [EVENT.validate_json(event.data) for event in found if event.name != b"ping"]
    assert [event.name.decode() for event in found if event.name != b"ping"] == [
        each.type for each in decoded
    ]
    return decoded


async def test_tokens_that_are_told_after_the_last_text_are_billed_too() -> None:
    told = {"input_tokens": 5, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    head, *rest = (
        event("message_start", message={**message, "usage": told}),
        event("content_block_start", index=0, content_block={"type": "text", "text": "hi"}),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
        event("message_delta", delta={}, usage={"output_tokens": 9}),
        event("message_stop"),
    )
    pieces = (b"%x\r\n%b\r\n" % (len(piece), piece) for piece in rest)
    async with RawServer(always(chunked(head, end=b""), *pieces, b"0\r\n\r\n")) as running:
        backend = backend_of(running)
        answer = await ask(backend, "createChatCompletion", STREAMED)
        await backend.close()
    assert answer.chunks[-1]["usage"]["completion_tokens"] == 9
    assert answer.exchange.delivered.completion == 9


@pytest.mark.parametrize("operation", ["createChatCompletion", "createMessage"])
async def test_a_stream_is_over_for_its_client_before_it_is_for_its_connection(operation: str) -> None:
    end = asyncio.Event()
    usage = {"input_tokens": 5, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    stream = chunked(
        event("message_start", message={**message, "usage": usage}),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
        event("message_stop"),
        end=b"",
    )

    async def handler(peer: Peer) -> None:
        while True:
            await peer.asked()
            await peer.send(stream)
            await end.wait()
            await peer.send(b"0\r\n\r\n")

    async with RawServer(handler) as running, asyncio.timeout(10):
        backend = backend_of(running)
        await ask(backend, operation, {**STREAMED, "max_tokens": 5})
        end.set()
        while not backend._origin._idle:  # noqa: ASYNC110 (what is watched is a list)
            await asyncio.sleep(0.001)
        await ask(backend, operation, {**STREAMED, "max_tokens": 5})
        assert running.connections == 1
        await backend.close()


async def test_a_chat_is_answered_in_openais_words(
    server: AnthropicServer, backend: AnthropicBackend
) -> None:
    answer = await ask(backend, "createChatCompletion", CHAT)
    completion = ChatCompletion.model_validate(answer.json, strict=True)
    assert completion.choices[0].message.content == "three two one"
    assert completion.model == "ours"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 3
    assert answer.exchange.delivered.completion == 3
    assert answer.exchange.delivered.prompt == completion.usage.prompt_tokens > 5
    sent = server.requests[-1]
    assert sent.headers["x-api-key"] == KEY
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert server.sent["model"] == MODEL


async def test_a_streamed_chat_ends_with_its_usage(backend: AnthropicBackend) -> None:
    answer = await ask(backend, "createChatCompletion", STREAMED)
    assert answer.text == "three two one"
    chunks = [ChatCompletionChunk.model_validate(chunk, strict=True) for chunk in answer.chunks]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == answer.exchange.delivered.completion == 3
    assert chunks[-1].usage.prompt_tokens == answer.exchange.delivered.prompt
    assert answer.exchange.delivered.cached == 3


async def test_tools_and_thoughts_pass_both_ways(server: AnthropicServer, backend: AnthropicBackend) -> None:
    answer = await ask(backend, "createChatCompletion", saying("call me", tools=[TOOL]))
    message = answer.json["choices"][0]["message"]
    [call] = message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"words": ["call", "me"]}
    history = [*CHAT["messages"], message, {"role": "tool", "tool_call_id": call["id"], "content": "done"}]
    await ask(backend, "createChatCompletion", {**CHAT, "messages": history, "tools": [TOOL]})
    assert [turn["role"] for turn in server.sent["messages"]] == ["user", "assistant", "user"]

    answer = await ask(backend, "createChatCompletion", saying("think hard", stream=True))
    deltas = [chunk["choices"][0]["delta"] for chunk in answer.chunks if chunk["choices"]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "It wants me to think."
    assert answer.text == "hard think"


@pytest.mark.parametrize("stream", [False, True])
async def test_its_own_messages_are_passed_on_under_our_name(backend: AnthropicBackend, stream: bool) -> None:
    headers = {"anthropic-version": "2026-10-21", "anthropic-beta": "some-beta"}
    answer = await ask(backend, "createMessage", {**NATIVE, "stream": stream}, headers)
    if stream:
        found = events(answer)
        assert found[0].message.model == "ours"
        assert (
            "".join(event.delta.text for event in found if event.type == "content_block_delta")
            == "three two one"
        )
        assert found[-1].type == "message_stop"
        assert found[-2].usage.model_extra["latency_ms"] > 0
    else:
        message = Message.model_validate(answer.json, strict=True)
        assert message.model == "ours"
    assert answer.exchange.delivered.completion == 3


async def test_headers_of_the_client_go_along(server: AnthropicServer, backend: AnthropicBackend) -> None:
    headers = {
        "anthropic-version": "2026-10-21",
        "anthropic-beta": "a,b",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "x-api-key": "clients",
        "cookie": "no",
    }
    await ask(backend, "createMessage", NATIVE, headers)
    sent = server.requests[-1].headers
    assert (sent["anthropic-version"], sent["anthropic-beta"]) == ("2026-10-21", "a,b")
    assert sent["traceparent"] == headers["traceparent"]
    assert sent["x-api-key"] == KEY
    assert "cookie" not in sent


async def test_a_service_tier_is_the_gateways_and_stays_here(
    server: AnthropicServer, backend: AnthropicBackend
) -> None:
    await ask(backend, "createMessage", {**NATIVE, "service_tier": "auto"})
    assert "service_tier" not in server.requests[-1].json()


async def test_what_is_asked_wrongly_is_the_clients_fault(server: AnthropicServer) -> None:
    backend = backend_of(server)
    with pytest.raises(InvalidRequestError, match="seed is not supported"):
        await ask(backend, "createChatCompletion", {**CHAT, "seed": 1})
    assert not server.requests
    with pytest.raises(HTTPError) as caught:
        await ask(backend, "createMessage", {**NATIVE, "messages": "x"})
    assert not isinstance(caught.value, BackendError)
    assert caught.value.status == 400
    await backend.close()


@pytest.mark.parametrize("operation", ["createChatCompletion", "createMessage"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "status"),
    [("overloaded", 503), ("rate_limited", 429), ("api_error", 502), ("html", 502), ("nothing", 502)],
)
async def test_a_failure_before_the_first_byte_leaves_another_to_try(
    server: AnthropicServer,
    backend: AnthropicBackend,
    operation: str,
    stream: bool,
    fault: Fault,
    status: int,
) -> None:
    server.faults.append(fault)
    request = asked(operation, {**NATIVE, "stream": stream})
    with pytest.raises(BackendError) as caught:
        await backend.answer(request.exchange)
    assert caught.value.status == status
    assert not request.exchange.started
    assert caught.value.retry_after == (7 if fault == "rate_limited" else None)


@pytest.mark.parametrize("operation", ["createChatCompletion", "createMessage"])
async def test_garbage_and_an_early_error_leave_another_to_try(
    server: AnthropicServer, backend: AnthropicBackend, operation: str
) -> None:
    server.faults.extend(["garbage", "garbage", "error_first"])
    for stream in (False, True, True):
        request = asked(operation, {**NATIVE, "stream": stream})
        with pytest.raises(BackendError):
            await backend.answer(request.exchange)
        assert not request.exchange.started


@pytest.mark.parametrize("operation", ["createChatCompletion", "createMessage"])
@pytest.mark.parametrize("fault", ["half", "quiet", "error_event"])
async def test_a_stream_that_breaks_off_is_an_error_and_what_came_is_counted(
    server: AnthropicServer, backend: AnthropicBackend, operation: str, fault: Fault
) -> None:
    server.faults.append(fault)
    request = asked(operation, {**NATIVE, "stream": True})
    with pytest.raises(BackendError):
        await backend.answer(request.exchange)
    assert request.exchange.started
    assert b"three" in request.body
    assert b"two" not in request.body
    assert request.exchange.delivered.completion == 2  # "three", estimated
    assert request.exchange.delivered.prompt > 0


async def test_a_wrong_key_is_the_operators_business(server: AnthropicServer) -> None:
    backend = backend_of(server, api_key="wrong")
    with pytest.raises(BackendError, match="refused the key") as caught:
        await ask(backend, "createChatCompletion", CHAT)
    assert caught.value.status == 502
    assert "wrong" not in str(caught.value)
    await backend.close()


async def test_a_server_that_is_not_there_or_silent(server: AnthropicServer) -> None:
    backend = backend_of(server, timeouts=TimeoutConfig(first_byte=0.1))
    server.faults.append("wait")
    with pytest.raises(BackendError) as caught:
        await ask(backend, "createChatCompletion", CHAT)
    assert caught.value.status == 504
    await server.__aexit__()
    await backend.close()
    with pytest.raises(BackendError) as caught:
        await ask(backend, "createChatCompletion", CHAT)
    assert caught.value.status == 503


async def test_a_client_that_leaves_takes_the_request_with_it(
    server: AnthropicServer, backend: AnthropicBackend
) -> None:
    server.faults.append("wait")
    task = asyncio.create_task(ask(backend, "createChatCompletion", STREAMED))
    await server.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    server.go.set()
    await server.hung_up.wait()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colour": "red"}, "which anthropic does not know"),
        ({"max_tokens": "many"}, "must be a whole number"),
        ({"max_tokens": 0}, "at least 1"),
        ({"sampling": "maybe"}, "must be pass or drop"),
        ({"version": 2023}, "must be text"),
    ],
)
async def test_options_that_it_does_not_know_are_refused(
    server: AnthropicServer, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        backend_of(server, options=options)


async def test_the_url_may_end_with_the_version(server: AnthropicServer) -> None:
    backend = backend_of(server, url=f"{server.url}/v1/")
    assert (await ask(backend, "createChatCompletion", CHAT)).status == 200
    await backend.close()


async def test_options_are_obeyed(server: AnthropicServer) -> None:
    backend = backend_of(server, options={"max_tokens": 99, "version": "2026-10-21", "sampling": "drop"})
    await ask(backend, "createChatCompletion", {**CHAT, "temperature": 0.5})
    assert server.sent["max_tokens"] == 99
    assert "temperature" not in server.sent
    await backend.close()
