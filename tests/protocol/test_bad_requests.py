"""Every way to get a request wrong ends in a sentence that names the field."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from penstock.errors import InvalidRequestError
from penstock.protocol.chat import parse_chat
from penstock.protocol.completion import check_prompt_ids, check_total_choices, parse_completion
from penstock.protocol.tokens import parse_detokenize, parse_tokenize

USER = {"role": "user", "content": "hi"}
HUGE = int("9" * 400)


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [USER], **fields}


def completion(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "prompt": "hi", **fields}


def read_chat(body: bytes) -> None:
    """Everything the front door does with a body before it needs a model."""
    request = parse_chat(body)
    request.template_messages()
    request.template_options()
    request.sampling().check_vocabulary(1000)
    request.beam()


def read_completion(body: bytes) -> None:
    request = parse_completion(body)
    prompts = request.prompts()
    params = request.sampling()
    params.check_vocabulary(1000)
    check_total_choices(len(prompts), params.n)
    check_total_choices(len(prompts), request.best_of or 1, "best_of")
    request.beam()
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            check_prompt_ids(prompt, 1000, f"prompt[{index}]" if len(prompts) > 1 else "prompt")


def refusal(read: Any, body: bytes) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        read(body)
    message = str(caught.value)
    assert message.endswith(".")
    assert len(message) < 400
    return caught.value


# Fields of both endpoints: value, and the field the error must name (the same unless told otherwise).
SHARED: list[tuple[str, Any]] = [
    *(("temperature", value) for value in (-0.1, 2.1, "1", True, [1], {}, HUGE)),
    *(("top_p", value) for value in (0, -0.5, 1.01, "1", True)),
    *(("min_p", value) for value in (-0.1, 1.1, "0", False)),
    *(("presence_penalty", value) for value in (-2.1, 2.1, "1", True)),
    *(("frequency_penalty", value) for value in (-2.1, 2.1, "1", True)),
    *(("repetition_penalty", value) for value in (0, -1, "1", True)),
    *(("top_k", value) for value in (-2, 1.5, 1.0, "1", True, HUGE)),
    *(("n", value) for value in (0, -1, 129, 1.0, "1", True, HUGE)),
    *(("seed", value) for value in (2**64, -(2**63) - 1, 1.0, "1", True, HUGE)),
    *(("max_tokens", value) for value in (0, -1, 1.0, "16", True, HUGE)),
    *(("min_tokens", value) for value in (-1, 1.0, "1", True, HUGE)),
    *(("stop", value) for value in ("", [""], ["a"] * 17, "x" * 257, ["ok", "x" * 257], 5, True, {"a": "b"})),
    ("stop[0]", [5]),
    ("stop[1]", ["a", None]),
    *(("stop_token_ids", value) for value in (5, "5", [1000], [1] * 1025)),
    *(("stop_token_ids[0]", value) for value in ([-1], [True], ["1"], [1.0], [HUGE])),
    *(
        ("logit_bias", value)
        for value in ({"1": 100.5}, {"1": -100.5}, {"1000": 1}, {"a": 1}, {"-1": 1}, {"1": True})
    ),
    *(("logit_bias", value) for value in ({"1": "1"}, {"1": None}, {"1.0": 1}, {str(HUGE): 1}, [], "x")),
    *(("ignore_eos", value) for value in (1, "true", 0)),
    *(("stream", value) for value in (1, "true")),
    *(("include_stop_str_in_output", value) for value in (1, "true")),
    *(("skip_special_tokens", value) for value in (0, "false")),
    *(("priority", value) for value in (1001, -1001, 1.0, "1", True, HUGE)),
    *(("cache_salt", value) for value in ("", "x" * 1025, 5)),
    *(("model", value) for value in (5, [], True)),
    ("stream_options", {"include_usage": True}),  # without stream
    *(("allowed_token_ids", value) for value in (5, "5", [], [1000], [1] * 65537)),
    *(("allowed_token_ids[0]", value) for value in ([-1], [True], ["1"], [1.0], [HUGE])),
    *(("bad_words", value) for value in ("", [""], "x", 5, ["x" * 4097], ["x"] * 1025, ["ok", ""])),
    ("bad_words", ["x" * 4096] * 17),
    ("bad_words[0]", [5]),
    *(("guided_choice", value) for value in ([], [""], "x", 5, ["x" * 4097], ["a", "b", "a"])),
    ("guided_choice", [str(number) for number in range(1025)]),
    ("guided_choice", [str(number) + "x" * 4000 for number in range(17)]),
    ("guided_choice[1]", ["a", None]),
    *(("structured_outputs", value) for value in ("x", 5, [])),
    *(
        (f"structured_outputs.{kind}", {kind: value})
        for kind, value in {
            "choice": [],
            "json": {"type": "object"},
            "json_object": True,
            "regex": "a*",
            "grammar": "root",
            "structural_tag": "x",
            "whitespace_pattern": "x",
            "disable_any_whitespace": True,
            "other": 1,
        }.items()
    ),
    ("structured_outputs.choice", {"choice": ["a", "a"]}),
    ("structured_outputs.choice", {"choice": ["a", ""]}),
    ("structured_outputs.choice[0]", {"choice": [1]}),
    *(("prompt_logprobs", value) for value in (-1, 21, 1.0, "1", True, HUGE)),
    *(("truncate_prompt_tokens", value) for value in (0, -2, 1.0, "1", True, HUGE)),
    *(("truncation_side", value) for value in ("middle", "", 5, True)),
    *(("return_token_ids", value) for value in (1, "true")),
    *(("return_tokens_as_token_ids", value) for value in (1, "true")),
    *(("use_beam_search", value) for value in (1, "true", 0)),
    *(("length_penalty", value) for value in (2.0, 0, "1", True)),  # without use_beam_search
    *(("early_stopping", value) for value in (True, "never", "always", 1)),
    ("user", 5),
    ("store", "yes"),
    *(("metadata", value) for value in ("x", {"a": 5}, {"a": HUGE}, {"a": ["b"]})),
]


@pytest.mark.parametrize(("field", "value"), SHARED)
@pytest.mark.parametrize(
    ("read", "make"), [(read_chat, chat), (read_completion, completion)], ids=["chat", "text"]
)
def test_a_bad_value_is_refused_and_its_field_named(read: Any, make: Any, field: str, value: Any) -> None:
    name = re.split(r"[\[.]", field)[0]
    assert refusal(read, json.dumps(make(**{name: value})).encode()).param == field


@pytest.mark.parametrize("value", [None])
@pytest.mark.parametrize("name", sorted({re.split(r"[\[.]", field)[0] for field, _ in SHARED}))
def test_null_is_the_same_as_leaving_an_optional_field_out(name: str, value: None) -> None:
    read_chat(json.dumps(chat(**{name: value})).encode())
    read_completion(json.dumps(completion(**{name: value})).encode())


CHAT_MISTAKES: list[tuple[dict[str, Any], str | None]] = [
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
    ({"top_logprobs": -1, "logprobs": True}, "top_logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"top_logprobs": 3, "logprobs": False}, "top_logprobs"),
    ({"top_logprobs": 0}, "top_logprobs"),
    ({"top_logprobs": 0, "logprobs": False}, "top_logprobs"),
    ({"top_logprobs": True, "logprobs": True}, "top_logprobs"),
    ({"logprobs": 5}, "logprobs"),
    ({"logprobs": "true"}, "logprobs"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_completion_tokens": True}, "max_completion_tokens"),
    ({"max_completion_tokens": HUGE}, "max_completion_tokens"),
    ({"max_completion_tokens": 0, "max_tokens": 5}, "max_completion_tokens"),
    ({"min_tokens": 6, "max_tokens": 5}, "min_tokens"),
    ({"min_tokens": 6, "max_completion_tokens": 5, "max_tokens": 50}, "min_tokens"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"stream": True, "stream_options": {"other": True}}, "stream_options.other"),
    ({"stream": True, "stream_options": True}, "stream_options"),
    ({"stream": False, "stream_options": {}}, "stream_options"),
    ({"frobnicate": 1}, "frobnicate"),
    ({"Temperature": 1}, "Temperature"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    *(
        ({"chat_template_kwargs": {"a": value}}, "chat_template_kwargs")
        for value in (HUGE, -HUGE, 2**64, [{"b": HUGE}], ["x"] * 1024, "x" * 65537, {"x" * 65537: 1})
    ),
    ({"chat_template_kwargs": {f"a{number}": number for number in range(1025)}}, "chat_template_kwargs"),
    ({"prompt_cache_options": {"a": HUGE}}, "prompt_cache_options"),
    ({"prompt_cache_options": {"a": [[[HUGE]]]}}, "prompt_cache_options"),
    ({"messages": [{"role": "assistant", "content": "x", "annotations": [{"a": HUGE}]}]},
     "messages[0].annotations"),
    ({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "x", "prompt_cache_breakpoint": {"a": HUGE}}]}]},
     "messages[0].content[0].prompt_cache_breakpoint"),
    ({"messages": [{"role": "assistant", "tool_calls": [
        {"id": "a", "type": "function", "index": HUGE, "function": {"name": "f", "arguments": "{}"}}]}]},
     "messages[0].tool_calls[0].index"),
    ({"continue_final_message": "yes"}, "continue_final_message"),
    ({"include_reasoning": "no"}, "include_reasoning"),
    ({"best_of": 2}, "best_of"),
    ({"echo": True}, "echo"),
    ({"max_completion_tokens": 0, "prompt_logprobs": 1}, "max_completion_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": {"role": "user"}}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [USER, {}]}, "messages[1].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "User", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": 5, "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": "x", "colour": 1}]}, "messages[0].colour"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y"}}]}]},
     "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
     "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
     "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": 1}]}]},
     "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "refusal", "refusal": "no"}]}]},
     "messages[0].content[0].type"),
    ({"messages": [{"role": "assistant"}]}, "messages[0].content"),
    ({"messages": [{"role": "assistant", "content": None, "tool_calls": []}]}, "messages[0].content"),
    ({"messages": [{"role": "assistant", "content": "x", "audio": {"id": "a"}}]}, "messages[0].audio"),
    ({"messages": [{"role": "assistant", "content": "x", "function_call": {"name": "f"}}]},
     "messages[0].function_call"),
    ({"messages": [USER, {"role": "tool", "tool_call_id": "a", "content": "x"}]}, "messages[1].tool_call_id"),
    ({"messages": [USER, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {}}]}]},
     "messages[0].tool_calls[0].type"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}]}]},
     "messages[0].tool_calls[0].function"),
    *(
        ({"messages": [{"role": "assistant", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}]}]},
         "messages[0].tool_calls[0].function.arguments")
        for arguments in (5, {})
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), CHAT_MISTAKES)
def test_a_mistake_in_a_chat_request_names_its_place(fields: dict[str, Any], param: str) -> None:
    assert refusal(read_chat, json.dumps(chat(**fields)).encode()).param == param


COMPLETION_MISTAKES: list[tuple[dict[str, Any], str | None]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [""]}, "prompt[0]"),
    ({"prompt": ["a", ""]}, "prompt[1]"),
    ({"prompt": [[]]}, "prompt[0]"),
    ({"prompt": [[1], []]}, "prompt[1]"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": {"a": 1}}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt[1]"),
    ({"prompt": ["a", [1]]}, "prompt[1]"),
    ({"prompt": [True]}, "prompt[0]"),
    ({"prompt": [1, True]}, "prompt[1]"),
    ({"prompt": [1.0]}, "prompt[0]"),
    ({"prompt": [[1, True]]}, "prompt[0][1]"),
    ({"prompt": [-1]}, "prompt[0]"),
    ({"prompt": [[1, -1]]}, "prompt[0][1]"),
    ({"prompt": [1000]}, "prompt"),
    ({"prompt": [[1], [1000]]}, "prompt[1]"),
    ({"prompt": [HUGE]}, "prompt[0]"),
    ({"prompt": ["a"] * 257}, "prompt"),
    ({"prompt": [[1]] * 257}, "prompt"),
    ({"prompt": ["a"] * 256, "n": 5}, "n"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": -1}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"logprobs": 1.0}, "logprobs"),
    ({"min_tokens": 17}, "min_tokens"),  # above the default of max_tokens
    ({"messages": [USER]}, "messages"),
    ({"max_completion_tokens": 5}, "max_completion_tokens"),
    ({"top_logprobs": 5}, "top_logprobs"),
    ({"add_special_tokens": 1}, "add_special_tokens"),
    ({"echo": 1}, "echo"),
    ({"echo": "yes"}, "echo"),
    ({"echo": False, "max_tokens": 0}, "max_tokens"),
    ({"prompt_logprobs": 1, "max_tokens": 0}, "max_tokens"),
    ({"echo": True, "max_tokens": -1}, "max_tokens"),
    *(({"best_of": value}, "best_of") for value in (0, -1, 129, 1.0, "2", True, HUGE)),
    ({"n": 3, "best_of": 2}, "best_of"),
    ({"best_of": 2, "stream": True}, "best_of"),
    ({"prompt": ["a"] * 9, "best_of": 128}, "best_of"),
    ({"suffix": "x"}, "suffix"),
    ({"logits_processors": ["a:b"]}, "logits_processors"),
]


@pytest.mark.parametrize(("fields", "param"), COMPLETION_MISTAKES)
def test_a_mistake_in_a_completion_request_names_its_place(fields: dict[str, Any], param: str) -> None:
    assert refusal(read_completion, json.dumps(completion(**fields)).encode()).param == param


TOGETHER: list[tuple[dict[str, Any], str]] = [
    ({"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
    ({"guided_choice": ["a"], "structured_outputs": {"choice": ["a"]}}, "guided_choice"),
    ({"guided_choice": ["a"], "min_tokens": 2}, "min_tokens"),
    ({"guided_choice": ["a"], "allowed_token_ids": [1]}, "allowed_token_ids"),
    *(
        ({"use_beam_search": True, name: value}, name)
        for name, value in {
            "stream": True, "temperature": 0.7, "top_p": 0.5, "top_k": 5, "min_p": 0.1,
            "repetition_penalty": 1.1, "presence_penalty": 1, "frequency_penalty": -1, "logit_bias": {"1": 1},
            "min_tokens": 1, "stop": "x", "allowed_token_ids": [1], "bad_words": ["x"],
            "guided_choice": ["a"], "structured_outputs": {"choice": ["a"]}, "prompt_logprobs": 1, "n": 65,
            "length_penalty": 11, "early_stopping": "always",
        }.items()
    ),
    *(({"use_beam_search": True, "length_penalty": value}, "length_penalty") for value in (-10.5, "1", True)),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), TOGETHER)
@pytest.mark.parametrize(
    ("read", "make"), [(read_chat, chat), (read_completion, completion)], ids=["chat", "text"]
)
def test_fields_that_exclude_each_other_are_named(
    read: Any, make: Any, fields: dict[str, Any], param: str
) -> None:
    assert refusal(read, json.dumps(make(**fields)).encode()).param == param


@pytest.mark.parametrize(
    ("read", "make", "fields", "param"),
    [
        (read_chat, chat, {"logprobs": True}, "logprobs"),
        (read_chat, chat, {"max_completion_tokens": 0}, "max_completion_tokens"),
        (read_completion, completion, {"logprobs": 0}, "logprobs"),
        (read_completion, completion, {"echo": True}, "echo"),
        (read_completion, completion, {"best_of": 65}, "best_of"),
        (read_completion, completion, {"n": 3, "best_of": 2}, "best_of"),
        (read_completion, completion, {"max_tokens": 0}, "max_tokens"),
    ],
)
def test_what_a_beam_search_cannot_do_is_named(
    read: Any, make: Any, fields: dict[str, Any], param: str
) -> None:
    body = make(use_beam_search=True, **fields)
    assert refusal(read, json.dumps(body).encode()).param == param


BODIES: list[tuple[bytes, str]] = [
    (b"", "empty"),
    (b"  \n", "empty"),
    (b"null", "an object, got null"),
    (b"[]", "an object, got an array"),
    (b'"text"', "an object, got a string"),
    (b"5", "an object, got an integer"),
    (b"{", "not valid JSON"),
    (b"{'messages': 1}", "not valid JSON"),
    (b'{"n": 1,}', "not valid JSON"),
    (b"\xef\xbb\xbf{}", "not valid JSON"),
    (b"\xff\xfe{\x00}\x00", "not valid JSON"),
    (b'{"user": "\xff"}', "not valid UTF-8"),
    (b'{"user": "\xed\xa0\x80"}', "not valid UTF-8"),
    (b'{"\xff": 1}', "not valid UTF-8"),
    (b'{"user": "\\ud800"}', "surrogate"),
    (b'{"user": "\\ud800x"}', "surrogate"),
    (b'{"user": "\\udc00"}', "surrogate"),
    (b'{"\\ud800": 1}', "surrogate"),
    (b'{"user": "a\x00b"}', "not valid JSON"),
    (b'{"temperature": NaN}', "not valid JSON"),
    (b'{"temperature": Infinity}', "not valid JSON"),
    (b'{"temperature": -Infinity}', "not valid JSON"),
    (b'{"temperature": 1e999}', "temperature is out of range"),
    (b'{"temperature": -1e999}', "temperature is out of range"),
    (b'{"temperature": ' + b"9" * 400 + b"}", "temperature is out of range"),
    (b'{"seed": ' + b"9" * 5000 + b"}", "seed is out of range"),
    (b'{"n": 1e999}', "n is out of range"),
    (b'{"vllm_xargs": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, "nested"),
    (b'{"vllm_xargs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
    (b'{"vllm_xargs": ' + b"[" * 1_000_000, "nested"),
]


@pytest.mark.parametrize(("body", "words"), BODIES, ids=[str(body[:30]) for body, _ in BODIES])
@pytest.mark.parametrize("read", [read_chat, read_completion])
def test_a_body_that_is_not_json_is_refused_with_a_sentence(read: Any, body: bytes, words: str) -> None:
    assert words in str(refusal(read, body))


@pytest.mark.parametrize("rest", [b"{}", b"x", b",", b"\x00"])
def test_anything_after_the_object_is_refused(rest: bytes) -> None:
    body = b'{"messages": [{"role": "user", "content": "x"}]}'
    read_chat(body + b"\r\n ")
    assert "not valid JSON" in str(refusal(read_chat, body + rest))


def test_a_number_beyond_floats_inside_an_unchecked_value_is_refused_too() -> None:
    refusal(
        read_chat, b'{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"a": 1e999}}'
    )


def test_deeply_nested_template_variables_are_refused() -> None:
    nested: Any = 1
    for _ in range(20):
        nested = [nested]
    fields = chat(chat_template_kwargs={"a": nested})
    assert refusal(read_chat, json.dumps(fields).encode()).param == "chat_template_kwargs"


def test_a_long_unknown_name_is_cut_in_the_sentence() -> None:
    error = refusal(read_chat, json.dumps(chat(**{"x" * 100_000: 1})).encode())
    assert len(str(error)) < 200
    assert error.code == "unknown_parameter"


def test_the_last_of_two_equal_keys_counts_as_in_other_json_readers() -> None:
    request = parse_chat(b'{"messages": [{"role": "user", "content": "x"}], "n": 2, "n": 3}')
    assert request.sampling().n == 3


def test_a_sentence_has_the_value_and_the_limits() -> None:
    error = refusal(read_chat, json.dumps(chat(temperature=3.5)).encode())
    assert str(error) == "temperature must be between 0 and 2, got 3.5."
    error = refusal(read_chat, json.dumps(chat(messages=[{"role": "robot", "content": ""}])).encode())
    assert str(error) == ("messages[0].role must be system, developer, user, assistant or tool, got 'robot'.")
    error = refusal(read_chat, json.dumps(chat(max_completion_tokens=0)).encode())
    assert str(error) == "max_completion_tokens must be at least 1, got 0."


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": [USER]}, "prompt"),
        ({"prompt": ["a"]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot"}]}, "messages[0].role"),
        ({"messages": [USER], "add_special_tokens": True}, "add_special_tokens"),
        ({"messages": [USER], "chat_template": "x"}, "chat_template"),
        ({"messages": [USER], "tools": [{"type": "function"}]}, "tools"),
        ({"prompt": "a", "what": 1}, "what"),
    ],
)
def test_a_bad_tokenize_request_names_its_place(body: dict[str, Any], param: str) -> None:
    def read(raw: bytes) -> None:
        request = parse_tokenize(raw)
        if request.prompt is None:
            request.template_messages()

    assert refusal(read, json.dumps(body).encode()).param == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "tokens"),
        ({"tokens": "1"}, "tokens"),
        ({"tokens": [True]}, "tokens[0]"),
        ({"tokens": [-1]}, "tokens[0]"),
        ({"tokens": [1.0]}, "tokens[0]"),
        ({"tokens": [HUGE]}, "tokens[0]"),
        ({"tokens": [1], "prompt": "x"}, "prompt"),
    ],
)
def test_a_bad_detokenize_request_names_its_place(body: dict[str, Any], param: str) -> None:
    assert refusal(parse_detokenize, json.dumps(body).encode()).param == param
