"""Relayed streams of Responses and Messages: named events, no end mark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.gateway.backends import BackendError
from penstock.protocol.errors import HTTPError
from tests.gateway.backends.asking import Got, ask, backend_of
from tests.gateway.backends.test_relay_streams import streaming
from tests.gateway.upstream.raw import Handler, RawServer


def named(name: str, **content: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **content})}\n\n".encode()


RESPONSE = {"id": "resp_1", "model": "upstream-name", "output": []}
RESPONSES = (
    named("response.created", response={**RESPONSE, "usage": None}),
    named("response.output_text.delta", delta="Hel", item_id="a"),
    named("response.output_text.delta", delta="lo", item_id="a"),
    named(
        "response.completed",
        response={
            **RESPONSE,
            "usage": {"input_tokens": 6, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 2}},
        },
    ),
)
MESSAGES = (
    named(
        "message_start",
        message={"id": "m", "model": "upstream-name", "usage": {"input_tokens": 6, "output_tokens": 1}},
    ),
    named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    b": ping\n\n",
    named("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hel"}),
    named("content_block_delta", index=0, delta={"type": "text_delta", "text": "lo"}),
    named("content_block_stop", index=0),
    named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 4}),
    named("message_stop"),
)
ASKED: dict[str, dict[str, Any]] = {
    "createResponse": {"input": "x", "stream": True},
    "createMessage": {"messages": [], "max_tokens": 9, "stream": True},
}


async def relay(handler: Handler, asks: str, got: Got | None = None) -> Got:
    async with RawServer(handler) as server:
        backend = backend_of(server.url, "vllm")
        try:
            return await ask(backend, ASKED[asks], asks, got=got)
        finally:
            await backend.close()


@pytest.mark.parametrize(("asks", "pieces"), [("createResponse", RESPONSES), ("createMessage", MESSAGES)])
@pytest.mark.parametrize("size", [1, 50, 10_000])
async def test_events_come_through_with_the_clients_name_and_the_charges(
    asks: str, pieces: tuple[bytes, ...], size: int
) -> None:
    data = b"".join(pieces)
    got = await relay(streaming(*(data[at : at + size] for at in range(0, len(data), size))), asks)
    assert got.ended
    assert b"upstream-name" not in got.body
    assert b"[DONE]" not in got.body
    names = [line for line in got.body.split(b"\n") if line.startswith(b"event:")]
    assert names == [line for line in data.split(b"\n") if line.startswith(b"event:")]
    assert (got.delivered.prompt, got.delivered.completion) == (6, 4)
    assert got.body.count(b'"latency_ms"') == 1
    assert [event["type"] for event in got.events] == [
        name.decode().removeprefix("event: ") for name in names
    ]


async def test_nothing_is_added_to_what_such_a_server_is_asked() -> None:
    async with RawServer(streaming(*MESSAGES)) as server:
        backend = backend_of(server.url, "vllm")
        await ask(backend, ASKED["createMessage"], "createMessage")
        await backend.close()
    assert json.loads(server.requests[0].body) == {**ASKED["createMessage"], "model": "upstream-name"}


@pytest.mark.parametrize(("asks", "pieces"), [("createResponse", RESPONSES), ("createMessage", MESSAGES)])
async def test_a_stream_that_breaks_off_is_an_error_and_its_events_are_counted(
    asks: str, pieces: tuple[bytes, ...]
) -> None:
    got = Got()
    cut = next(number for number, piece in enumerate(pieces) if b'"lo"' in piece)
    with pytest.raises(BackendError):
        await relay(streaming(*pieces[: cut + 1], end=b""), asks, got)
    assert got.delivered.completion == 2
    assert not got.ended


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (named("error", error={"type": "invalid_request_error", "message": "bad"}), 400),
        (named("error", error={"type": "overloaded_error", "message": "Overloaded"}), 503),
        (named("error", code="server_error", message="boom"), 502),
        (b"data: {nonsense}\n\n", 502),
        (b'data: {"type":3}\n\n', 502),
    ],
)
async def test_a_failure_before_the_stream_began_has_a_status(said: bytes, status: int) -> None:
    got = Got()
    with pytest.raises(HTTPError) as caught:
        await relay(streaming(said), "createMessage", got)
    assert (caught.value.status, got.status) == (status, 0)
    assert isinstance(caught.value, BackendError) is (status != 400)


@pytest.mark.parametrize("usage", [{}, {"input_tokens": 6}, {"input_tokens": 6, "output_tokens": 0}])
async def test_a_usage_without_counts_makes_no_stream_free(usage: Any) -> None:
    last = named("response.completed", response={**RESPONSE, "usage": usage})
    got = await relay(streaming(*RESPONSES[:-1], last), "createResponse")
    assert got.delivered.completion == 2


async def test_an_event_nested_without_end_is_the_servers_failure() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    event = b'data: {"type":"response.output_text.delta","x":%b}\n\n' % deep
    with pytest.raises(BackendError) as caught:
        await relay(streaming(*RESPONSES[:2], event), "createResponse")
    assert caught.value.status == 502
