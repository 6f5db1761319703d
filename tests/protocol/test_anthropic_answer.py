"""Anthropic's answers, whole and streamed, as chat completions."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from penstock.protocol.anthropic_answer import ChatHeader, to_completion
from penstock.protocol.anthropic_stream import ChatChunks, StreamTroubleError
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.sse_reader import EventReader

HEADER = ChatHeader(model="ours", created=1_700_000_000, include_usage=True)
USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 5,
    "cache_creation_input_tokens": 3,
    "output_tokens": 7,
}


def completion(*content: dict[str, Any], **fields: Any) -> tuple[ChatCompletion, Any]:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": list(content),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
        **fields,
    }
    result, usage = to_completion(json.dumps(message).encode(), HEADER)
    return ChatCompletion.model_validate_json(msgspec.json.encode(result), strict=True), usage


def test_text_becomes_the_content_and_usage_is_summed() -> None:
    answer, usage = completion({"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"})
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.model, answer.id) == ("ours", "msg_1")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (
        18,
        7,
        25,
    )
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 5
    assert (usage.prompt, usage.cached, usage.completion) == (18, 5, 7)


def test_a_use_of_a_tool_becomes_a_call() -> None:
    answer, _ = completion(
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": [1]}}, stop_reason="tool_use"
    )
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.type == "function"
    assert (call.id, call.function.name, json.loads(call.function.arguments)) == ("t1", "look", {"x": [1]})


def test_thoughts_become_reasoning_and_keep_their_signature() -> None:
    block = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    answer, usage = completion(
        block,
        {"type": "text", "text": "Yes"},
        usage={**USAGE, "output_tokens_details": {"thinking_tokens": 4}},
    )
    extra = answer.choices[0].message.model_extra
    assert extra is not None
    assert extra["reasoning_content"] == extra["reasoning"] == "Hm."
    assert extra["thinking_blocks"] == [block]
    assert usage.reasoning == 4


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "stop"),
        ("refusal", "content_filter"),
        ("something_new", "stop"),
    ],
)
def test_why_it_stopped(reason: str, expected: str) -> None:
    answer, _ = completion({"type": "text", "text": "x"}, stop_reason=reason)
    assert answer.choices[0].finish_reason == expected


def test_a_refusal_says_why() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}
    answer, _ = completion(stop_reason="refusal", stop_details=details)
    assert answer.choices[0].message.refusal == "It could do harm."


def test_blocks_of_other_kinds_are_passed_over() -> None:
    answer, _ = completion(
        {"type": "server_tool_use", "id": "s"}, {"type": "text", "text": "x"}, {"type": "later"}
    )
    assert answer.choices[0].message.content == "x"


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"id": 1}', b"\xff", b"[" * 100_000])
def test_what_is_no_message_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ForeignAnswerError, match="not one of Anthropic's messages"):
        to_completion(body, HEADER)


# ---------------------------------------------------------------- streams


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def started() -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": []}
    return {"type": "message_start", "message": {**message, "usage": {**USAGE, "output_tokens": 1}}}


def block(index: int, kind: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": kind},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text_block(index: int, *pieces: str) -> list[dict[str, Any]]:
    return block(
        index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces)
    )


def ended(reason: str = "end_turn", output: int = 7, **delta: Any) -> list[dict[str, Any]]:
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, **delta},
            "usage": {"output_tokens": output},
        },
        {"type": "message_stop"},
    ]


def read(data: bytes, cuts: list[int] | None = None) -> tuple[ChatChunks, list[ChatCompletionChunk]]:
    """Feed `data` in pieces cut at `cuts`; the chunks as the official SDK's types."""
    stream, reader, out = ChatChunks(HEADER), EventReader(), b""
    places = [0, *sorted(cuts or ()), len(data)]
    for start, end in pairwise(places):
        for event in reader.feed(data[start:end]):
            out += stream.feed(event)
    assert not reader.pending
    if stream.complete:
        out += stream.closing()
    events = [line.removeprefix(b"data: ") for line in out.split(b"\n\n") if line]
    if stream.complete:
        assert events.pop() == b"[DONE]"
    return stream, [ChatCompletionChunk.model_validate_json(event, strict=True) for event in events]


def test_a_streamed_text() -> None:
    stream, chunks = read(sse(started(), {"type": "ping"}, *text_block(0, "Hel", "lo"), *ended()))
    assert [chunk.choices[0].delta.role for chunk in chunks[:2]] == ["assistant", None]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (18, 7)
    assert stream.complete


def test_a_streamed_call_with_its_arguments_in_pieces() -> None:
    tool = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    pieces = ["", '{"x"', ": 1}"]
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    other = {"type": "tool_use", "id": "t2", "name": "rest", "input": {}}
    _, chunks = read(
        sse(
            started(),
            *text_block(0, "Let me."),
            *block(1, tool, *deltas),
            *block(2, other),
            *ended("tool_use"),
        )
    )
    calls = [call for chunk in chunks if chunk.choices for call in chunk.choices[0].delta.tool_calls or ()]
    arguments = {0: "", 1: ""}
    for call in calls:
        assert call.function is not None
        arguments[call.index] += call.function.arguments or ""
    assert {index: json.loads(text) for index, text in arguments.items()} == {0: {"x": 1}, 1: {}}
    assert [(call.id, call.function and call.function.name) for call in calls if call.id] == [
        ("t1", "look"),
        ("t2", "rest"),
    ]
    assert chunks[-2].choices[0].finish_reason == "tool_calls"


def test_streamed_thoughts_come_before_the_text_and_keep_their_signature() -> None:
    thought = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Hm"},
        {"type": "thinking_delta", "thinking": "."},
        {"type": "signature_delta", "signature": "sig"},
    )
    _, chunks = read(sse(started(), *thought, *text_block(1, "Yes"), *ended()))
    deltas = [chunk.choices[0].delta.model_extra or {} for chunk in chunks if chunk.choices]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm."
    [blocks] = [delta["thinking_blocks"] for delta in deltas if "thinking_blocks" in delta]
    assert blocks == [{"type": "thinking", "thinking": "Hm.", "signature": "sig"}]


def test_counts_are_estimates_until_the_end_says_them_exactly() -> None:
    stream, reader = ChatChunks(HEADER), EventReader()
    for event in reader.feed(sse(started(), *text_block(0, "a" * 10, "b" * 10))):
        stream.feed(event)
    assert (stream.usage.prompt, stream.usage.completion) == (18, 5)  # twenty bytes, four to a token
    for event in reader.feed(sse(*ended(output=93))):
        stream.feed(event)
    assert (stream.usage.prompt, stream.usage.cached, stream.usage.completion) == (18, 5, 93)


def test_an_error_event_ends_the_stream_with_what_it_means() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(StreamTroubleError) as caught:
        read(sse(started(), *text_block(0, "x"), error))
    assert caught.value.trouble.status == 503


@pytest.mark.parametrize(
    "data",
    [
        sse(*text_block(0, "x")),
        b"data: nonsense\n\n",
        b'event: message_start\ndata: {"type": "message_start"}\n\n',
        b'data: {"type": "message_start", "message": {"id": 5}}\n\n',
        b"data: \xff\n\n",
    ],
)
def test_a_stream_of_something_else_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(ForeignAnswerError):
        read(data)


def test_events_of_kinds_to_come_are_passed_over() -> None:
    stream, _ = read(sse(started(), {"type": "weather", "rain": True}, *text_block(0, "x"), *ended()))
    assert stream.complete


@given(
    pieces=st.lists(st.text(min_size=1, max_size=12), max_size=6),
    cuts=st.lists(st.integers(0, 4000), max_size=12),
)
def test_any_cutting_of_the_bytes_gives_the_same_text(pieces: list[str], cuts: list[int]) -> None:
    data = sse(started(), *text_block(0, *pieces), *ended())
    stream, chunks = read(data, [cut % len(data) for cut in cuts])
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "".join(pieces)
    assert stream.usage.completion == 7
