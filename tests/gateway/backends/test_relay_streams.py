"""Relayed streams of chat and text completions."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.config import PriceConfig
from penstock.config.sections import TimeoutConfig
from penstock.gateway.accounts.price import Price
from penstock.gateway.backends import BackendError
from penstock.gateway.backends.relay_stream import MAX_EVENT_BYTES
from penstock.gateway.upstream import response
from penstock.protocol.errors import HTTPError
from tests.gateway.backends.asking import Got, ask, backend_of, exchange_of
from tests.gateway.upstream.raw import Handler, Peer, RawServer, always, once, plain

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
CHAT = {"messages": [{"role": "user", "content": "x"}], "stream": True}


def chunk(
    content: str | None = None, *, usage: Any = None, index: int = 0, finish: str | None = None
) -> bytes:
    """One event as vLLM writes it, with its running usage if that was asked for."""
    delta = {} if content is None else {"content": content}
    message: dict[str, Any] = {
        "id": "c-1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "upstream-name",
        "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    if usage is not None:
        message["usage"] = usage
    return event(message)


def event(message: Any) -> bytes:
    return b"data: " + json.dumps(message, separators=(",", ":")).encode() + b"\n\n"


def used(completion: int, prompt: int = 5, cached: int = 2) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def usage_chunk(completion: int) -> bytes:
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "upstream-name"}
    return event({**head, "choices": [], "usage": used(completion)})


def streaming(*pieces: bytes, end: bytes = b"0\r\n\r\n") -> Handler:
    """Each piece is a chunk of the transfer and a packet of its own. Without an `end` the server hangs up."""
    sent = [HEAD, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)]
    return always(*sent, end) if end else once(*sent)


async def relay(handler: Handler, body: dict[str, Any] | None = None, **more: Any) -> Got:
    asked = {key: more.pop(key) for key in ("asks", "headers", "got") if key in more}
    async with RawServer(handler) as server:
        backend = backend_of(server.url, **{"kind": "vllm", **more})
        try:
            got = await ask(backend, {**CHAT, **(body or {})}, **asked)
            assert len(backend._origin._connections) == server.connections == 1  # kept for the next one
            return got
        finally:
            await backend.close()


async def broken(handler: Handler, **more: Any) -> tuple[HTTPError, Got]:
    got = Got()
    async with RawServer(handler) as server:
        backend = backend_of(server.url, **{"kind": "vllm", **more})
        with pytest.raises(HTTPError) as caught:
            await ask(backend, CHAT, got=got)
        await backend.close()
    return caught.value, got


PLAIN = (chunk(""), chunk("Hel"), chunk("lo"), chunk(None, finish="stop"))
RUNNING = (
    chunk("", usage=used(0)),
    chunk("Hel", usage=used(1)),
    chunk("lo there", usage=used(3)),
    chunk(None, usage=used(3), finish="stop"),
)


async def test_a_stream_comes_through_under_the_clients_name() -> None:
    got = await relay(streaming(*PLAIN, usage_chunk(2), DONE))
    assert got.headers["content-type"].startswith("text/event-stream")
    expected = b"".join(PLAIN).replace(b'"upstream-name"', b'"mine"') + DONE
    assert got.body == expected
    assert got.ended
    assert (got.delivered.prompt, got.delivered.completion, got.delivered.cached) == (5, 2, 2)


async def test_events_go_on_byte_for_byte_when_nothing_must_change() -> None:
    odd = (
        b'data: {"id" : "c", "choices":[ {"index":0, "delta":{"content":"\\u00fc"}} ] , "model":"mine" }\n\n'
    )
    got = await relay(streaming(odd, chunk(None, finish="stop"), usage_chunk(1), DONE), model="mine")
    assert got.body.startswith(odd)


async def test_events_are_written_as_they_come() -> None:
    got = Got()

    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(HEAD)
        for piece in PLAIN:
            await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await got.reached(PLAIN.index(piece) + 1)
        await peer.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(DONE), DONE))
        await peer.gone()

    await relay(handler, got=got)
    assert len(got.writes) == len(PLAIN) + 1


async def test_events_that_come_together_are_written_together() -> None:
    got = await relay(streaming(b"".join(RUNNING) + usage_chunk(3) + DONE))
    assert len(got.writes) == 1
    assert got.text == "Hello there"


@pytest.mark.parametrize("size", [1, 5, 64, 1000])
async def test_events_cut_anywhere_are_the_same_events(size: int) -> None:
    data = b"".join(RUNNING) + usage_chunk(3) + DONE
    whole = await relay(streaming(data))
    cut = await relay(streaming(*(data[at : at + size] for at in range(0, len(data), size))))
    assert cut.body == whole.body
    assert cut.delivered == whole.delivered


async def test_the_usage_we_asked_for_is_not_shown_to_a_client_that_did_not() -> None:
    got = await relay(streaming(*RUNNING, usage_chunk(3), DONE))
    assert b'"usage"' not in got.body
    assert [event["choices"][0]["delta"] for event in got.events[:-1]] == [
        {"content": ""},
        {"content": "Hel"},
        {"content": "lo there"},
        {},
    ]
    assert got.delivered.completion == 3


@pytest.mark.parametrize(
    "usage",
    ['"usage":null', '"usage": null', '"usage" : {"prompt_tokens": 1, "prompt_tokens_details": {"a": 1}}'],
)
@pytest.mark.parametrize("shape", ['{%s,"choices":%s}', '{"x":1, %s, "choices":%s}', '{"choices":%s,%s}'])
async def test_usage_is_taken_out_however_it_is_written(shape: str, usage: str) -> None:
    choices = '[{"index":0,"delta":{"content":"a"}}]'
    parts = (choices, usage) if shape.endswith(",%s}") else (usage, choices)
    got = await relay(streaming(b"data: " + (shape % parts).encode() + b"\n\n", *PLAIN, DONE))
    assert "usage" not in got.events[0]
    assert got.events[0]["choices"][0]["delta"]["content"] == "a"


async def test_text_that_speaks_of_usage_and_models_is_left_alone() -> None:
    said = ',"usage":{"a":1},"usage":null "model":"upstream-name" [DONE] data: [DONE]\n\ndata: {"choices":[]}'
    got = await relay(streaming(chunk(said, usage=used(9)), chunk(None, finish="stop"), usage_chunk(9), DONE))
    assert got.text == said


async def test_a_client_that_asked_for_usage_gets_it_once_at_the_end() -> None:
    got = await relay(streaming(*RUNNING, usage_chunk(3), DONE), {"stream_options": {"include_usage": True}})
    *chunks, last, done = got.events
    assert done == "[DONE]"
    assert all(event.get("usage") is None for event in chunks)
    assert last["choices"] == []
    assert (last["id"], last["model"], last["created"]) == ("c-1", "mine", 7)
    assert last["usage"]["completion_tokens"] == 3
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] == 2
    assert last["usage"]["latency_ms"] > 0


async def test_a_client_that_asked_for_running_usage_gets_that() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    got = await relay(streaming(*RUNNING, usage_chunk(3), DONE), {"stream_options": options})
    assert [event["usage"]["completion_tokens"] for event in got.events[:-1]] == [0, 1, 3, 3, 3]


async def test_a_server_that_puts_the_usage_into_its_last_chunk_is_understood() -> None:
    ends = chunk(None, finish="stop", usage=used(2))
    got = await relay(streaming(*PLAIN[:3], ends, DONE), {"stream_options": {"include_usage": True}})
    assert got.delivered.completion == 2
    assert [bool(event.get("usage")) for event in got.events[:-1]] == [False, False, False, False, True]


async def test_a_server_that_tells_no_usage_is_counted_by_chunks_with_content() -> None:
    got = await relay(
        streaming(*PLAIN, DONE), {"stream_options": {"include_usage": True}}, kind="openai_compatible"
    )
    assert got.delivered.completion == 2
    assert got.events[-2]["usage"]["completion_tokens"] == 2


async def test_where_the_server_tells_no_usage_the_cost_that_is_told_is_the_one_that_is_billed() -> None:
    price = Price.of(PriceConfig(input=1000.0, output=10.0))
    options = {"stream_options": {"include_usage": True}}
    async with RawServer(streaming(*PLAIN, DONE)) as server:
        backend = backend_of(server.url)
        got = Got()
        exchange = exchange_of("createChatCompletion", {"model": "mine", **CHAT, **options}, got)
        exchange.price, exchange.delivered.prompt = price, 40  # as it was estimated before
        await backend.answer(exchange)
        await backend.close()
    told, billed = got.events[-2]["usage"], exchange.billed()
    assert (told["prompt_tokens"], told["completion_tokens"]) == (billed.prompt, billed.completion) == (40, 2)
    assert told["cost"] == exchange.cost(billed) == pytest.approx(0.04002)


async def test_a_final_usage_corrects_the_count_of_chunks() -> None:
    got = await relay(streaming(*PLAIN, usage_chunk(11), DONE), kind="openai_compatible")
    assert got.delivered.completion == 11
    fewer = await relay(streaming(*PLAIN, usage_chunk(1), DONE), kind="openai_compatible")
    assert fewer.delivered.completion == 2, "which were handed out"


async def test_what_was_delivered_before_a_break_is_counted_exactly() -> None:
    _, got = await broken(streaming(*RUNNING[:3], end=b""))
    assert (got.delivered.prompt, got.delivered.completion) == (5, 3)
    assert got.text == "Hello there"


async def test_running_usage_of_several_choices_adds_up() -> None:
    pieces = [
        chunk("a", index=0, usage=used(1)),
        chunk("b", index=1, usage=used(1)),
        chunk("c", index=1, usage=used(4)),
        chunk(None, index=0, usage=used(1), finish="stop"),
        chunk(None, index=1, usage=used(4), finish="stop"),
    ]
    whole = await relay(streaming(*pieces, usage_chunk(5), DONE), {"n": 2})
    assert whole.delivered.completion == 5
    error, half = await broken_several(streaming(*pieces[:3], end=b""))
    assert half.delivered.completion == 5
    assert isinstance(error, BackendError)


async def broken_several(handler: Handler, kind: str = "vllm") -> tuple[HTTPError, Got]:
    got = Got()
    async with RawServer(handler) as server:
        backend = backend_of(server.url, kind)
        with pytest.raises(HTTPError) as caught:
            await ask(backend, {**CHAT, "n": 2}, got=got)
        await backend.close()
    return caught.value, got


async def test_running_usage_over_all_choices_is_taken_as_it_is() -> None:
    pieces = [
        chunk("a", index=0, usage=used(1)),
        chunk("b", index=1, usage=used(2)),
        chunk("c", index=0, usage=used(3)),
    ]
    _, got = await broken_several(streaming(*pieces, end=b""), "penstock")
    assert got.delivered.completion == 3


async def test_text_completions_stream_alike() -> None:
    pieces = [
        event(
            {
                "id": "c",
                "model": "upstream-name",
                "choices": [{"index": 0, "text": text, "finish_reason": end}],
            }
        )
        for text, end in (("a", None), ("b", None), ("", "length"))
    ]
    got = await relay(
        streaming(*pieces, DONE), {"prompt": "x"}, asks="createCompletion", kind="openai_compatible"
    )
    assert (got.text, got.delivered.completion) == ("ab", 2)


async def test_reasoning_and_tool_calls_are_content() -> None:
    deltas = [{"role": "assistant", "content": ""}, {"reasoning_content": "hm"}, {"content": None},
              {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, {"tool_calls": []}]  # fmt: skip
    pieces = [event({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    got = await relay(streaming(*pieces, chunk(None, finish="stop"), DONE), kind="openai_compatible")
    assert got.delivered.completion == 2


async def test_what_the_server_is_asked() -> None:
    async with RawServer(streaming(*PLAIN, DONE)) as server:
        for kind in ("vllm", "openai_compatible", "openai"):
            backend = backend_of(server.url, kind)
            await ask(backend, CHAT)
            await backend.close()
        backend = backend_of(server.url, options={"stream_usage": False})
        await ask(backend, {**CHAT, "stream_options": {"include_usage": True}})
        await backend.close()
    asked = [json.loads(request.body).get("stream_options") for request in server.requests]
    assert asked == [
        {"include_usage": True, "continuous_usage_stats": True},
        {"include_usage": True},
        {"include_usage": True},
        None,
    ]


# ---------------------------------------------------------------------- other ways to write events


@pytest.mark.parametrize(
    "rewrite",
    [
        pytest.param(lambda data: data.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(lambda data: data.replace(b"data: ", b"data:"), id="no space"),
        pytest.param(
            lambda data: data.replace(b"data: ", b"id: 1\nevent: message\ndata: "), id="more fields"
        ),
        pytest.param(lambda data: b": ping\n\n" + data.replace(b"\n\n", b"\n\n: ping\n\n"), id="comments"),
        pytest.param(lambda data: b"\n\n\n\n" + data, id="blank lines"),
        pytest.param(
            lambda data: b'data: {"choices":[],"prompt_filter_results":[]}\n\n' + data, id="preface"
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 10_000])
async def test_other_ways_to_write_the_same_events(rewrite: Any, size: int) -> None:
    data = rewrite(b"".join(RUNNING) + usage_chunk(3) + DONE)
    got = await relay(streaming(*(data[at : at + size] for at in range(0, len(data), size))))
    assert got.text.startswith("Hello there") or b'data:{"' in got.body
    assert got.delivered.completion == 3
    assert b"upstream-name" not in got.body
    assert b'"usage"' not in got.body
    assert got.body.endswith(DONE)


async def test_a_sign_of_life_does_not_begin_the_stream() -> None:
    error, got = await broken(streaming(b": ping\n\n", b": ping\n\n", end=b"0\r\n\r\n"))
    assert isinstance(error, BackendError)
    assert got.status == 0


async def test_a_finished_stream_without_an_end_mark_gets_one() -> None:
    got = await relay(streaming(*PLAIN))
    assert got.body.endswith(DONE)
    assert got.text == "Hello"


# ---------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(streaming(end=b"0\r\n\r\n"), id="nothing"),
        pytest.param(streaming(end=b""), id="closed"),
        pytest.param(streaming(DONE[:5]), id="half an event"),
        pytest.param(streaming(b"data: {not json}\n\n"), id="no JSON"),
        pytest.param(streaming(b"data: hello\n\n"), id="text"),
        pytest.param(streaming(b"<html>\n\n"), id="HTML"),
        pytest.param(streaming(b'data: {"a":1}\n\n'), id="another object"),
        pytest.param(streaming(b'data: {"choices":[{"index":"x"}]}\n\n'), id="wrong types"),
        pytest.param(streaming(b'data: {"choices":[],"usage":{"completion_tokens":-4}}\n\n'), id="bad usage"),
        pytest.param(streaming(b"data: \xff\xfe\n\n"), id="no UTF-8"),
        pytest.param(always(plain(b'{"choices":[]}', content_type="application/json")), id="no stream"),
    ],
)
async def test_a_stream_that_fails_before_it_began_can_be_tried_elsewhere(handler: Handler) -> None:
    error, got = await broken(handler)
    assert isinstance(error, BackendError)
    assert error.status == 502
    assert got.status == 0


@pytest.mark.parametrize(
    "end",
    [
        pytest.param((), id="nothing more"),
        pytest.param((b"data: {not json}\n\n",), id="garbage"),
        pytest.param((b'data: {"error":{"message":"engine died","code":500}}\n\n', DONE), id="an error"),
    ],
)
async def test_a_stream_that_fails_later_ends_in_an_error(end: tuple[bytes, ...]) -> None:
    error, got = await broken(streaming(*RUNNING[:2], *end))
    assert isinstance(error, BackendError)
    assert got.text == "Hel"
    assert not got.ended
    assert "engine died" not in str(error)


@pytest.mark.parametrize(
    "said",
    [
        b'data: {"error":{"message":"bad schema","type":"BadRequestError","code":400}}\n\n',
        b'data: {"error":{"message":"bad schema","type":"invalid_request_error"}}\n\n',
        b'error: {"code":400,"message":"bad schema","type":"invalid_request_error"}\n\n',
        b'event: error\ndata: {"error":{"message":"bad schema","code":400}}\n\n',
    ],
)
async def test_an_error_as_the_first_event_is_an_error_and_no_stream(said: bytes) -> None:
    error, got = await broken(streaming(said, DONE))
    assert not isinstance(error, BackendError)
    assert (error.status, str(error)) == (400, "bad schema")
    assert got.status == 0


async def test_an_event_without_end_is_cut_off() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(HEAD)
        piece = b"data: " + b"x" * (1 << 20)
        while True:
            await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))

    error, _ = await broken(handler)
    assert str(MAX_EVENT_BYTES) in str(error)


async def test_a_client_that_leaves_takes_the_server_off_its_work() -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(HEAD, b"%x\r\n%b\r\n" % (len(RUNNING[1]), RUNNING[1]))
        await peer.gone()

    async with RawServer(handler) as server:
        backend = backend_of(server.url, "vllm")
        got = Got()
        task = asyncio.create_task(ask(backend, CHAT, got=got))
        await got.reached(1)
        task.cancel()
        await asyncio.wait_for(server.hung_up.wait(), 30)
        assert got.delivered.completion == 1
        await backend.close()


async def test_a_client_that_is_slow_holds_the_server_back() -> None:
    sent = 0
    piece = chunk("x" * 10_000, usage=used(1))

    async def handler(peer: Peer) -> None:
        nonlocal sent
        await peer.asked()
        await peer.send(HEAD)
        while True:
            await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            sent += 1

    async with RawServer(handler) as server:
        backend = backend_of(server.url, "vllm")
        got = Got()
        got.blocked = True
        task = asyncio.create_task(ask(backend, CHAT, got=got))
        before = -1
        while before != sent:  # until nothing moves any more
            before = sent
            await asyncio.sleep(0.1)
        assert 0 < sent * len(piece) < 16 << 20
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await backend.close()


# ---------------------------------------------------------------------- the end of the connection


async def test_a_stream_is_over_for_its_client_before_it_is_for_its_connection() -> None:
    end = asyncio.Event()

    async def handler(peer: Peer) -> None:
        while True:
            await peer.asked()
            await peer.send(HEAD, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*PLAIN, DONE)))
            await end.wait()
            await peer.send(b"0\r\n\r\n")

    async with RawServer(handler) as server, asyncio.timeout(10):
        backend = backend_of(server.url)
        assert (await ask(backend, CHAT)).ended
        end.set()
        while not backend._origin._idle:  # noqa: ASYNC110 (what is watched is a list)
            await asyncio.sleep(0.001)
        assert (await ask(backend, CHAT)).ended
        assert server.connections == 1
        await backend.close()


async def test_a_connection_whose_stream_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "LAST_BYTES_SECONDS", 0.01)

    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(HEAD, *(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*PLAIN, DONE)))
        await peer.gone()

    async with RawServer(handler) as server, asyncio.timeout(10):
        backend = backend_of(server.url)
        assert (await ask(backend, CHAT)).ended
        await server.hung_up.wait()
        await backend.close()


# ---------------------------------------------------------------------- what nobody counted is not free


@pytest.mark.parametrize(
    ("usage", "billed"),
    [
        ({}, (3, 2)),
        ({"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}, (3, 2)),
        ({"prompt_tokens": 10}, (10, 2)),
        ({"completion_tokens": 9}, (3, 9)),
        ({"total_tokens": 15}, (13, 2)),
        ({"prompt_tokens": 10, "total_tokens": 15}, (10, 5)),
        ({"prompt_tokens": 10, "completion_tokens": 0}, (10, 2)),
    ],
)
@pytest.mark.parametrize("kind", ["vllm", "openai_compatible"])
async def test_counts_that_a_usage_lacks_are_guessed(kind: str, usage: Any, billed: tuple[int, int]) -> None:
    got = Got()
    async with RawServer(streaming(*PLAIN, event({"choices": [], "usage": usage}), DONE)) as server:
        backend = backend_of(server.url, kind)
        got.exchange = exchange_of(
            "createChatCompletion", {**CHAT, "stream_options": {"include_usage": True}}, got
        )
        got.exchange.delivered.prompt = 3  # the estimate
        await backend.answer(got.exchange)
        await backend.close()
    assert (got.delivered.prompt, got.delivered.completion) == billed
    told = got.events[-2]["usage"]
    assert (told["prompt_tokens"], told["completion_tokens"]) == billed


@pytest.mark.parametrize("running", [{}, {"completion_tokens": 0}, {"completion_tokens": None}])
async def test_a_running_usage_without_a_count_takes_no_tokens_back(running: Any) -> None:
    pieces = (chunk("Hel", usage=used(3)), chunk("lo", usage=running), chunk(None, finish="stop"))
    got = await relay(streaming(*pieces, DONE))
    assert got.delivered.completion == 4


@pytest.mark.parametrize(
    "delta",
    [
        {"function_call": {"arguments": "{"}},
        {"audio": {"data": "AAAA"}},
        {"role": "assistant", "reasoning_text": "so"},
        {"content": None, "tool_calls": [], "images": [{"type": "image_url"}]},
        {"content": [{"type": "text", "text": "parts"}]},
    ],
)
async def test_content_of_whatever_kind_is_passed_on_and_counted(delta: Any) -> None:
    piece = event({"model": "mine", "choices": [{"index": 0, "delta": delta}]})
    nothing = event(
        {"model": "mine", "choices": [{"delta": {"role": "assistant", "content": "", "x": None}}]}
    )
    got = await relay(streaming(nothing, piece, piece, chunk(None, finish="stop"), DONE), model="mine")
    assert got.delivered.completion == 2
    assert got.events[1]["choices"][0]["delta"] == delta


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "payload",
    [
        b'{"choices":[{"delta":{"content":"x","y":%b}}]}' % DEEP,
        b'{"choices":[{"delta":{"tool_calls":%b}}]}' % DEEP,
        b'{"error":%b}' % DEEP,
        b'{"x":%b,"choices":[]}' % DEEP,
    ],
)
async def test_events_nested_without_end_are_the_servers_failure(payload: bytes) -> None:
    error, got = await broken(streaming(chunk("a"), b"data: %b\n\n" % payload))
    assert (type(error), error.status) == (BackendError, 502)
    assert got.text == "a"


@pytest.mark.parametrize("drip", [b": wait\n\n", b"x"])
async def test_a_stream_that_never_comes_to_an_event_is_given_up(drip: bytes) -> None:
    async def handler(peer: Peer) -> None:
        await peer.asked()
        await peer.send(HEAD, b"6\r\ndata: \r\n" if drip == b"x" else b"")
        while True:
            await peer.send(b"%x\r\n%b\r\n" % (len(drip), drip))
            await asyncio.sleep(0.01)

    error, got = await broken(handler, timeouts=TimeoutConfig(first_byte=0.2))
    assert (type(error), error.status, got.status) == (BackendError, 504, 0)
