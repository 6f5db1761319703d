"""Chat completion requests, translated to Anthropic's /v1/messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.errors import InvalidRequestError
from penstock.protocol.anthropic_request import AnthropicOptions, to_messages
from tests.servers.anthropic import check_params

HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "d", "parameters": {"type": "object"}},
}


def translated(options: AnthropicOptions | None = None, **fields: Any) -> dict[str, Any]:
    body = json.dumps({"model": "ours", "messages": HELLO, **fields}).encode()
    result = to_messages(body, "claude", options or AnthropicOptions())
    sent = dict(result)
    for old in ("temperature", "top_p", "top_k"):  # of the API version before the SDK's
        sent.pop(old, None)
    check_params(sent)
    return result


def refusal(**fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        translated(**fields)
    return caught.value


def turns(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return translated(messages=list(messages))["messages"]


def test_the_least_request_gets_the_limit_that_anthropic_wants() -> None:
    assert translated() == {
        "model": "claude",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_tokens": 7}, {"max_tokens": 7}),
        ({"max_tokens": 7, "max_completion_tokens": 9}, {"max_tokens": 9}),
        ({"temperature": 0.3}, {"temperature": 0.3}),
        ({"temperature": 1.8}, {"temperature": 1.0}),
        ({"top_p": 0.5, "top_k": 4}, {"top_p": 0.5, "top_k": 4}),
        ({"top_k": -1}, {}),
        ({"stop": "END"}, {"stop_sequences": ["END"]}),
        ({"stop": ["a", "b"]}, {"stop_sequences": ["a", "b"]}),
        ({"stream": True, "stream_options": {"include_usage": True}}, {"stream": True}),
        ({"user": "u1"}, {"metadata": {"user_id": "u1"}}),
        ({"user": "u1", "safety_identifier": "s1"}, {"metadata": {"user_id": "s1"}}),
        (
            {"reasoning_effort": "high"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        ),
        ({"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        ),
        ({"response_format": {"type": "text"}}, {}),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"type": "object"}},
                }
            },
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        ),
        (
            {
                "n": 1,
                "logprobs": False,
                "logit_bias": {},
                "presence_penalty": 0,
                "store": True,
                "metadata": {"a": "b"},
            },
            {},
        ),
    ],
)
def test_a_field_is_translated(given: dict[str, Any], expected: dict[str, Any]) -> None:
    result = translated(**given)
    assert {name: result[name] for name in expected} == expected
    if not expected:
        assert result == translated()


def test_sampling_is_left_out_where_the_configuration_says_so() -> None:
    options = AnthropicOptions(sampling="drop", version="2026-10-21")
    assert translated(options, temperature=0.2, top_p=0.5) == translated(options)


def test_sampling_is_refused_by_name_for_versions_that_lack_it() -> None:
    with pytest.raises(InvalidRequestError, match=r"temperature is not supported: version 2026-10-21"):
        translated(AnthropicOptions(version="2026-10-21"), temperature=0.2)


def test_a_budget_for_thoughts_leaves_room_for_the_answer() -> None:
    result = translated(AnthropicOptions(thinking="budget"), reasoning_effort="medium", max_tokens=500)
    assert result["thinking"] == {"type": "enabled", "budget_tokens": 8192}
    assert result["max_tokens"] == 8692


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("logit_bias", {"5": 1}),
        ("seed", 1),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -1),
        ("functions", [{"name": "f"}]),
        ("audio", {"voice": "x"}),
        ("modalities", ["text", "audio"]),
        ("min_p", 0.1),
        ("guided_choice", ["a"]),
        ("best_of", 2),
        ("prompt_logprobs", 1),
        ("echo", True),
    ],
)
def test_what_anthropic_has_no_word_for_is_refused_by_name(name: str, value: Any) -> None:
    error = refusal(**{name: value})
    assert error.param == name
    assert str(error).startswith(f"{name} is not supported.")


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"messages": []}, "messages", "at least one message"),
        ({"messages": [{"role": "system", "content": "s"}]}, "messages", "at least one message"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content", "empty"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "must be"),
        ({"messages": "hi"}, "messages", "an array"),
        (
            {"messages": [*HELLO, {"role": "tool", "tool_call_id": "t9", "content": "x"}]},
            "messages[1].tool_call_id",
            "no earlier",
        ),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"temperature": 3}, "temperature", "at most 2"),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice", "none, auto, required"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "only function tools"),
        ({"response_format": {"type": "json_object"}}, "response_format", "json_schema"),
        ({"reasoning_effort": "extreme"}, "reasoning_effort", "must be"),
        ({"whatever": 1}, "whatever", "Unknown field"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(fields: dict[str, Any], param: str, words: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert words in str(error)


def test_instructions_are_gathered_in_front() -> None:
    result = translated(
        messages=[
            {"role": "system", "content": "Be brief."},
            *HELLO,
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        ]
    )
    assert result["system"] == "Be brief.\nBe kind."
    assert [turn["role"] for turn in result["messages"]] == ["user"]


def test_calls_and_their_results_become_one_turn_each() -> None:
    def call(id: str, arguments: str) -> dict[str, Any]:
        return {"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}

    assert turns(
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call("a", '{"x": 1}'), call("b", "")]},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "two"}]},
        {"role": "user", "content": "And?"},
    ) == [
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "look", "input": {"x": 1}},
                {"type": "tool_use", "id": "b", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "two"}]},
                {"type": "text", "text": "And?"},
            ],
        },
    ]


@pytest.mark.parametrize("arguments", ["[1]", "{", "nonsense"])
def test_arguments_that_are_no_object_are_refused(arguments: str) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    error = refusal(messages=[*HELLO, {"role": "assistant", "tool_calls": [call]}])
    assert error.param == "messages[1].tool_calls[0].function.arguments"


def test_thoughts_go_back_with_their_signature() -> None:
    block = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    said = turns(*HELLO, {"role": "assistant", "content": "Yes.", "thinking_blocks": [block]})[1]
    assert said["content"] == [block, {"type": "text", "text": "Yes."}]


@pytest.mark.parametrize(
    "block", [{}, {"type": "tool_use", "id": "x", "name": "f", "input": {}}, {"type": 5}]
)
def test_thoughts_of_another_kind_are_refused(block: dict[str, Any]) -> None:
    error = refusal(messages=[*HELLO, {"role": "assistant", "content": "x", "thinking_blocks": [block]}])
    assert error.param == "messages[1].thinking_blocks[0].type"


def test_an_assistant_that_said_nothing_is_left_out_and_neighbours_are_joined() -> None:
    [turn] = turns(*HELLO, {"role": "assistant", "content": ""}, {"role": "user", "content": "Still there?"})
    assert [block["text"] for block in turn["content"]] == ["Hello", "Still there?"]


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("https://x.test/a.png", {"type": "url", "url": "https://x.test/a.png"}),
        ("data:image/png;base64,aGk=", {"type": "base64", "media_type": "image/png", "data": "aGk="}),
    ],
)
def test_an_image_is_given_by_address_or_in_base64(url: str, source: dict[str, str]) -> None:
    [turn] = turns({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
    assert turn["content"] == [{"type": "image", "source": source}]


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "data:image/svg+xml;base64,aGk=",
        "data:image/png,hi",
        "data:image/png;base64,",
        "",
    ],
)
def test_other_images_are_refused(url: str) -> None:
    error = refusal(
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    )
    assert error.param == "messages[0].content[0].image_url.url"


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("auto", None, {"type": "auto"}),
        ("none", False, {"type": "none"}),
        ("required", None, {"type": "any"}),
        ({"type": "function", "function": {"name": "look"}}, None, {"type": "tool", "name": "look"}),
    ],
)
def test_the_choice_of_tools(choice: Any, parallel: bool | None, expected: Any) -> None:
    fields = {"tool_choice": choice, "parallel_tool_calls": parallel, "tools": [TOOL]}
    result = translated(**{name: value for name, value in fields.items() if value is not None})
    assert result.get("tool_choice") == expected
    assert result["tools"] == [{"name": "look", "description": "d", "input_schema": {"type": "object"}}]
