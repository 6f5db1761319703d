"""What good requests mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.engine.beam import BeamSearchParams
from penstock.engine.request import SamplingParams
from penstock.errors import ContextLengthError
from penstock.protocol.chat import ChatCompletionRequest, parse_chat
from penstock.protocol.completion import CompletionRequest, parse_completion
from penstock.protocol.fitting import check_context, truncated

USER = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> ChatCompletionRequest:
    return parse_chat(json.dumps({"messages": [USER], **fields}).encode())


def completion(**fields: Any) -> CompletionRequest:
    return parse_completion(json.dumps({"prompt": "hi", **fields}).encode())


def test_a_bare_chat_request_samples_with_the_defaults_until_the_context_ends() -> None:
    assert chat().sampling() == SamplingParams()
    assert chat().output_limit == (None, "max_tokens")


def test_a_bare_completion_request_makes_sixteen_tokens() -> None:
    assert completion().sampling() == SamplingParams(max_tokens=16)


def test_every_sampling_field_arrives() -> None:
    fields = {
        "n": 2, "min_tokens": 1, "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1,
        "repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": -0.3,
        "logit_bias": {"5": -100, "7": 3.5}, "seed": 2**64 - 1, "stop": ["a", "b"], "stop_token_ids": [3],
        "ignore_eos": True, "include_stop_str_in_output": True, "skip_special_tokens": False,
        "allowed_token_ids": [1, 2], "bad_words": ["x"], "prompt_logprobs": 3,
    }  # fmt: skip
    expected = {**fields, "logit_bias": {5: -100.0, 7: 3.5}, "stop": ("a", "b"), "stop_token_ids": (3,)}
    assert chat(**fields).sampling() == SamplingParams(**expected)
    assert completion(**fields).sampling() == SamplingParams(**expected)


def test_a_single_stop_string_is_one_stop() -> None:
    assert chat(stop="END").sampling().stop == ("END",)


def test_integers_are_good_numbers() -> None:
    assert chat(temperature=1, top_p=1).sampling() == SamplingParams()


def test_chat_logprobs_are_a_switch_with_a_count() -> None:
    assert chat(logprobs=True).sampling().logprobs == 0
    assert chat(logprobs=True, top_logprobs=20).sampling().logprobs == 20
    assert chat(logprobs=False).sampling().logprobs is None
    assert chat(logprobs=True, top_logprobs=0).sampling().logprobs == 0


def test_completion_logprobs_are_a_count() -> None:
    assert completion(logprobs=0).sampling().logprobs == 0
    assert completion(logprobs=20).sampling().logprobs == 20
    assert completion().sampling().logprobs is None


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    request = chat(max_tokens=5, max_completion_tokens=7)
    assert request.sampling().max_tokens == 7
    assert request.output_limit == (7, "max_completion_tokens")


def test_guided_choices_come_under_two_names() -> None:
    assert chat(guided_choice=["a", "b"]).sampling().guided_choice == ("a", "b")
    assert chat(structured_outputs={"choice": ["a", "b"]}).sampling().guided_choice == ("a", "b")
    assert chat(structured_outputs={}).sampling().guided_choice == ()
    assert chat(structured_outputs={"json": None, "json_object": False}).sampling().guided_choice == ()


def test_a_guided_completion_is_as_long_as_its_choice() -> None:
    assert completion(guided_choice=["a"]).sampling().max_tokens is None
    assert completion(guided_choice=["a"], max_tokens=2).sampling().max_tokens == 2


def test_an_echo_with_logprobs_scores_the_prompt() -> None:
    assert completion(echo=True).sampling().prompt_logprobs is None
    assert completion(echo=True, logprobs=2).sampling().prompt_logprobs == 2
    assert completion(echo=True, logprobs=2, prompt_logprobs=5).sampling().prompt_logprobs == 5
    assert completion(echo=True, max_tokens=0).sampling().max_tokens == 0


def test_best_of_is_the_number_of_choices_or_of_beams() -> None:
    assert completion(n=2, best_of=5).sampling().best_of == 5
    searched = completion(n=2, best_of=5, use_beam_search=True)
    assert searched.sampling().best_of is None
    assert searched.beam() == BeamSearchParams(beam_width=5, n=2, max_tokens=16)


def test_a_beam_search_has_the_wanted_shape() -> None:
    assert chat(n=3).beam() is None
    beam = chat(
        n=3, use_beam_search=True, length_penalty=-1, early_stopping="never", max_completion_tokens=7,
        temperature=0, ignore_eos=True, stop_token_ids=[4],
    ).beam()  # fmt: skip
    assert beam == BeamSearchParams(
        beam_width=3, n=3, max_tokens=7, length_penalty=-1.0, early_stopping="never", ignore_eos=True,
        stop_token_ids=(4,),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"truncate_prompt_tokens": 2}, [4, 5]),
        ({"truncate_prompt_tokens": 2, "truncation_side": "left"}, [4, 5]),
        ({"truncate_prompt_tokens": 2, "truncation_side": "right"}, [1, 2]),
        ({"truncate_prompt_tokens": 9}, [1, 2, 3, 4, 5]),
        ({"truncate_prompt_tokens": -1}, [2, 3, 4, 5]),
        ({"truncation_side": "right"}, [1, 2, 3, 4, 5]),
    ],
)
def test_a_longer_prompt_is_cut(fields: dict[str, Any], expected: list[int]) -> None:
    """In a context of 7, of which the answer is to have 3."""
    assert truncated([1, 2, 3, 4, 5], chat(**fields), 7, 3) == expected


def test_a_prompt_is_cut_to_leave_room_for_one_token_at_least() -> None:
    assert truncated([1, 2, 3, 4, 5], chat(truncate_prompt_tokens=-1), 4, None) == [3, 4, 5]
    assert truncated([1, 2, 3, 4, 5], completion(truncate_prompt_tokens=-1), 4, 0) == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
def test_a_prompt_is_text_ids_or_a_list_of_either(prompt: Any, expected: Any) -> None:
    assert completion(prompt=prompt).prompts() == expected


def test_messages_become_what_templates_expect() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "u", "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "42"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": None, "refusal": "never"},
        {"role": "user", "content": ""},
    ]
    assert chat(messages=messages).template_messages() == [
        {"role": "system", "content": "s"},
        {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "u", "name": "Ann"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
            ],
        },
        {"role": "tool", "content": [{"type": "text", "text": "42"}], "tool_call_id": "c1"},
        {"role": "assistant", "content": [{"type": "text", "text": "no"}]},
        {"role": "assistant", "content": "never"},
        {"role": "user", "content": ""},
    ]


def test_an_answer_of_another_server_can_be_sent_back_as_it_came() -> None:
    message = {"role": "assistant", "content": "x", "refusal": None, "annotations": [], "audio": None,
               "function_call": None, "tool_calls": None, "reasoning_content": "hm"}  # fmt: skip
    [entry] = chat(messages=[message]).template_messages()
    assert entry == {"role": "assistant", "content": "x", "reasoning_content": "hm", "reasoning": "hm"}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, {}),
        ({"reasoning": "a"}, {"reasoning": "a", "reasoning_content": "a"}),
        ({"reasoning_content": "a"}, {"reasoning": "a", "reasoning_content": "a"}),
        ({"reasoning": "a", "reasoning_content": "b"}, {"reasoning": "a", "reasoning_content": "b"}),
    ],
)
def test_reasoning_reaches_templates_under_both_names(sent: dict[str, str], expected: dict[str, str]) -> None:
    [entry] = chat(messages=[{"role": "assistant", "content": "x", **sent}]).template_messages()
    assert entry == {"role": "assistant", "content": "x", **expected}


def test_the_assistant_turn_is_opened_unless_the_last_message_goes_on() -> None:
    def options(**fields: Any) -> tuple[bool, bool]:
        values = chat(**fields).template_options()
        return values["add_generation_prompt"], values["continue_final_message"]

    assert options() == (True, False)
    assert options(continue_final_message=True) == (False, True)
    assert options(add_generation_prompt=False) == (False, False)
    assert options(add_generation_prompt=False, continue_final_message=True) == (False, True)


def test_template_variables_pass_through() -> None:
    assert chat(chat_template_kwargs={"enable_thinking": False}).template_options()["kwargs"] == {
        "enable_thinking": False
    }


def test_a_prompt_must_leave_room_for_what_was_asked() -> None:
    check_context(99, None, 100, prompt="messages", field="max_tokens")
    check_context(90, 10, 100, prompt="messages", field="max_tokens")
    check_context(100, 0, 100, prompt="prompt", field="max_tokens")
    with pytest.raises(
        ContextLengthError, match=r"101 tokens, but the model's context is 100 tokens\. Shorten"
    ):
        check_context(101, 0, 100, prompt="prompt", field="max_tokens")
    with pytest.raises(ContextLengthError, match=r"100 tokens, but the model's context is 100") as caught:
        check_context(100, None, 100, prompt="messages", field="max_tokens")
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")
    with pytest.raises(
        ContextLengthError, match=r"90 tokens and max_tokens asks for 11.*context is 100"
    ) as caught:
        check_context(90, 11, 100, prompt="messages", field="max_tokens")
    assert caught.value.param == "max_tokens"
