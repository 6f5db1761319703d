"""Requests to /v1/messages for servers that speak chat completions, and their answers on the way back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from penstock.errors import InvalidRequestError
from penstock.protocol.anthropic_events import MessageEvents
from penstock.protocol.anthropic_inbound import to_chat
from penstock.protocol.anthropic_outbound import to_message
from penstock.protocol.anthropic_request import AnthropicOptions, to_messages
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.sse_reader import EventReader

HELLO = [{"role": "user", "content": "Hello"}]
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


def chat(**fields: Any) -> dict[str, Any]:
    body = json.dumps({"model": "ours", "max_tokens": 9, "messages": HELLO, **fields}).encode()
    return to_chat(body)


def messages(*turns: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return chat(messages=list(turns), **fields)["messages"]


def test_the_least_request() -> None:
    assert chat() == {"model": "ours", "max_tokens": 9, "messages": HELLO}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"stop_sequences": ["a"]}, {"stop": ["a"]}),
        ({"temperature": 0.5, "top_p": 0.9, "top_k": 3}, {"temperature": 0.5, "top_p": 0.9, "top_k": 3}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        ({"metadata": {"user_id": "u"}}, {"user": "u"}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
                }
            },
        ),
        (
            {
                "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
                "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            },
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "parameters": {"type": "object"}, "description": "d"},
                    }
                ],
                "tool_choice": "required",
                "parallel_tool_calls": False,
            },
        ),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}, "service_tier": "auto"}, {}),
    ],
)
def test_a_field_is_translated(given: dict[str, Any], expected: dict[str, Any]) -> None:
    result = chat(**given)
    assert {name: value for name, value in result.items() if name not in chat()} == expected


def test_a_conversation_with_tools_and_pictures() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    text = {"type": "text", "text": "What is it?", "cache_control": {"type": "ephemeral"}}
    assert messages(
        {"role": "user", "content": [image, text]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "A cat."}, image],
                },
                {"type": "text", "text": "Go on."},
            ],
        },
        system=[{"type": "text", "text": "Be brief."}],
    ) == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {"type": "text", "text": "What is it?"},
            ],
        },
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "A cat."},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {"type": "text", "text": "Go on."},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "n", "input": {}}]}
                ]
            },
            "messages[0].content[0].type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]},
            "messages[0].content[0].source.type",
        ),
        ({"tools": [{"type": "web_search_20260209", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool"}}, "tool_choice.type"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"whatever": 1}, "whatever"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        chat(**fields)
    assert caught.value.param == param


TEXT = st.text(min_size=1, max_size=20)
TURNS = st.lists(
    st.tuples(TEXT, TEXT, st.dictionaries(st.text(max_size=5), st.integers(-9, 9), max_size=3)),
    min_size=1,
    max_size=4,
)


@given(TURNS)
def test_there_and_back_again_is_the_same_conversation(turns: list[tuple[str, str, dict[str, int]]]) -> None:
    conversation: list[dict[str, Any]] = []
    for index, (question, result, arguments) in enumerate(turns):
        use = {"type": "tool_use", "id": f"t{index}", "name": "f", "input": arguments}
        answer = {"type": "tool_result", "tool_use_id": f"t{index}", "content": result}
        conversation.append({"role": "user", "content": [{"type": "text", "text": question}]})
        conversation.append({"role": "assistant", "content": [use]})
        conversation.append({"role": "user", "content": [answer]})
        conversation.append({"role": "assistant", "content": [{"type": "text", "text": result}]})
    there = chat(messages=conversation)
    back = to_messages(json.dumps(there).encode(), "claude", AnthropicOptions())
    assert back["messages"] == conversation


# ---------------------------------------------------------------- answers


def completion(message: dict[str, Any], finish: str = "stop", **choice: Any) -> bytes:
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    choices = [{"index": 0, "message": message, "finish_reason": finish, **choice}]
    return json.dumps({"id": "c1", "object": "chat.completion", "choices": choices, "usage": usage}).encode()


def test_a_whole_answer_is_a_message_of_anthropics() -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    body = completion(
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm.", "tool_calls": [call]},
        "tool_calls",
    )
    message = Message.model_validate_json(msgspec.json.encode(to_message(body, "ours")), strict=True)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.stop_reason == "tool_use"
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (8, 4, 3)


@pytest.mark.parametrize(
    ("finish", "stop", "expected"),
    [
        ("stop", None, ("end_turn", None)),
        ("stop", "END", ("stop_sequence", "END")),
        ("stop", 128_009, ("end_turn", None)),
        ("length", None, ("max_tokens", None)),
        ("content_filter", None, ("refusal", None)),
    ],
)
def test_why_it_stopped(finish: str, stop: Any, expected: tuple[str, str | None]) -> None:
    message = to_message(completion({"content": "x"}, finish, stop_reason=stop), "ours")
    assert (message["stop_reason"], message["stop_sequence"]) == expected


def test_arguments_that_are_no_json_are_kept_as_text() -> None:
    call = {"id": "t1", "function": {"name": "f", "arguments": "x = 1"}}
    [block] = to_message(completion({"content": None, "tool_calls": [call]}), "m")["content"]
    assert block["input"] == {"unparsed_arguments": "x = 1"}


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"choices": []}', b'{"choices": 3}', b"\xff"])
def test_what_is_no_completion_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ForeignAnswerError):
        to_message(body, "m")


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return json.dumps({"id": "c1", "object": "chat.completion.chunk", "choices": choices, **fields}).encode()


USED = chunk(usage={"prompt_tokens": 12, "completion_tokens": 3})


def events(*chunks: bytes) -> list[Any]:
    stream = MessageEvents("ours")
    data = b"".join(map(stream.feed, chunks)) + stream.closing()
    found = EventReader().feed(data)
    decoded = [EVENT.validate_json(event.data) for event in found]
    assert [event.name.decode() for event in found] == [event.type for event in decoded]
    return decoded


def test_a_stream_opens_and_closes_each_block_once() -> None:
    call = {"index": 0, "id": "t1", "type": "function", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"x": 1}'}}
    other = {"index": 1, "id": "t2", "type": "function", "function": {"name": "g", "arguments": "{}"}}
    found = events(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Hm."}),
        chunk({"content": "Let "}),
        chunk({"content": "me."}),
        chunk({"tool_calls": [call]}),
        chunk({"tool_calls": [more]}),
        chunk({"tool_calls": [other]}),
        chunk({}, "tool_calls"),
        USED,
    )
    blocks = [event.content_block.type for event in found if event.type == "content_block_start"]
    assert blocks == ["thinking", "text", "tool_use", "tool_use"]
    opened = [event.index for event in found if event.type == "content_block_start"]
    closed = [event.index for event in found if event.type == "content_block_stop"]
    assert opened == closed == [0, 1, 2, 3]
    assert [event.type for event in found][-2:] == ["message_delta", "message_stop"]
    assert found[-2].delta.stop_reason == "tool_use"
    assert (found[-2].usage.input_tokens, found[-2].usage.output_tokens) == (12, 3)


def test_a_stream_that_ends_early_is_an_error() -> None:
    with pytest.raises(ForeignAnswerError, match="ended before its answer did"):
        events(chunk({"content": "Let "}))


def test_a_call_that_is_taken_up_again_is_an_error() -> None:
    one = {"index": 0, "id": "t1", "function": {"name": "f"}}
    two = {"index": 1, "id": "t2", "function": {"name": "g"}}
    with pytest.raises(ForeignAnswerError, match="goes back"):
        events(*(chunk({"tool_calls": [call]}) for call in (one, two, {"index": 0, "function": {}})))


@given(st.lists(st.tuples(st.sampled_from(["content", "reasoning_content"]), TEXT), max_size=8))
def test_whatever_is_said_in_whatever_order_arrives(said: list[tuple[str, str]]) -> None:
    found = events(*(chunk({kind: text}) for kind, text in said), chunk({}, "stop"), USED)
    deltas = [event.delta for event in found if event.type == "content_block_delta"]
    given = {"content": "text", "reasoning_content": "thinking"}
    for kind, name in given.items():
        expected = "".join(text for each, text in said if each == kind)
        assert "".join(getattr(delta, name, "") for delta in deltas) == expected
