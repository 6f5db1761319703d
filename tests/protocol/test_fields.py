"""Every documented field of OpenAI and vLLM is obeyed, ignored or refused by name."""

from __future__ import annotations

import json
import typing
from typing import Any

import msgspec
import openai.types as text_types
import openai.types.chat as chat_types
import pytest

from penstock.errors import InvalidRequestError
from penstock.protocol import fields
from penstock.protocol.chat import ChatWire, parse_chat
from penstock.protocol.completion import CompletionWire, parse_completion
from penstock.protocol.fields import Ignored, Refused
from penstock.protocol.tokens import TokenizeWire

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
TEXT = {"prompt": "hi"}

# vLLM's own additions, from its documentation of the two endpoints; older names of renamed ones included.
VLLM_SHARED = [
    "use_beam_search", "top_k", "min_p", "repetition_penalty", "watermarking", "length_penalty",
    "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens", "skip_special_tokens",
    "spaces_between_special_tokens", "truncate_prompt_tokens", "truncation_side", "prompt_logprobs",
    "logprob_token_ids", "allowed_token_ids", "bad_words", "add_special_tokens", "response_format",
    "structured_outputs", "priority", "request_id", "session_id", "return_tokens_as_token_ids",
    "return_token_ids", "routed_experts_prompt_start", "return_token_offsets", "return_mm_kwargs",
    "cache_salt", "kv_transfer_params", "ec_transfer_params", "vllm_xargs", "repetition_detection",
    "thinking_token_budget", "stream_interval", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar", "guided_decoding_backend", "guided_whitespace_pattern", "logits_processors",
    "best_of", "echo",
]  # fmt: skip
VLLM_CHAT = [
    "add_generation_prompt", "continue_final_message", "documents", "chat_template",
    "chat_template_kwargs", "media_io_kwargs", "mm_processor_kwargs", "include_reasoning",
    "return_prompt_text",
]  # fmt: skip
VLLM_TEXT = ["prompt_embeds", "suffix"]


def known(struct: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def documented(params: Any) -> set[str]:
    return set(typing.get_type_hints(params))


def test_every_openai_chat_field_is_known() -> None:
    module = chat_types.completion_create_params
    assert documented(module.CompletionCreateParamsStreaming) <= known(ChatWire)


def test_every_openai_completion_field_is_known() -> None:
    module = text_types.completion_create_params
    assert documented(module.CompletionCreateParamsStreaming) <= known(CompletionWire)


def test_every_vllm_field_is_known() -> None:
    assert {*VLLM_SHARED, *VLLM_CHAT} <= known(ChatWire)
    assert {*VLLM_SHARED, *VLLM_TEXT} <= known(CompletionWire)


@pytest.mark.parametrize("table", [fields.CHAT, fields.COMPLETION, fields.TOKENIZE])
def test_no_field_is_decided_twice(table: tuple[fields.Field, ...]) -> None:
    names = [field.name for field in table]
    assert len(names) == len(set(names))


ASKING: dict[str, Any] = {
    # What a client sends when it means it, for fields where "something" below would not be that.
    "tool_choice": "required",
    "function_call": {"name": "f"},
    "modalities": ["text", "audio"],
    "response_format": {"type": "json_object"},
    "reasoning_effort": "high",
    "verbosity": "low",
    "spaces_between_special_tokens": False,
}
REFUSED = [
    (parse, base, field)
    for parse, base, table in ((parse_chat, CHAT, fields.CHAT), (parse_completion, TEXT, fields.COMPLETION))
    for field in table
    if isinstance(field, Refused)
]


@pytest.mark.parametrize(("parse", "base", "field"), REFUSED, ids=lambda value: getattr(value, "name", ""))
def test_a_refused_field_says_that_it_is_not_supported(
    parse: Any, base: dict[str, Any], field: Refused
) -> None:
    for value in (ASKING.get(field.name, {"something": 1}), 7, "seven", [7], 0.5):
        with pytest.raises(InvalidRequestError, match=f"^{field.name} is not supported") as caught:
            parse(json.dumps({**base, field.name: value}).encode())
        assert caught.value.param == field.name
        assert caught.value.code == "unsupported_parameter"


@pytest.mark.parametrize(("parse", "base", "field"), REFUSED, ids=lambda value: getattr(value, "name", ""))
def test_a_refused_field_is_accepted_where_it_asks_for_nothing(
    parse: Any, base: dict[str, Any], field: Refused
) -> None:
    for value in (*field.neutral, None):
        parse(json.dumps({**base, field.name: value}).encode())


@pytest.mark.parametrize(
    ("name", "value"), [("watermarking", 0), ("stream_interval", True), ("stream_interval", 1.0)]
)
def test_neutral_values_are_compared_with_their_type(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="not supported"):
        parse_completion(json.dumps({**TEXT, name: value}).encode())


IGNORED = {str: "x", bool: True, dict[str, str]: {"a": "b"}, dict[str, Any]: {"a": "b"}}


@pytest.mark.parametrize(
    "field", [field for field in fields.CHAT if isinstance(field, Ignored)], ids=lambda f: f.name
)
def test_an_ignored_field_changes_nothing(field: Ignored) -> None:
    request = parse_chat(json.dumps({**CHAT, field.name: IGNORED[field.type]}).encode())
    assert request.sampling() == parse_chat(json.dumps(CHAT).encode()).sampling()


def test_the_table_adds_to_the_tokenize_request_too() -> None:
    assert {"tools", "chat_template", "prompt", "messages"} <= known(TokenizeWire)
