"""What the Python API can be asked beyond sampling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, SamplingParams
from penstock.errors import ConfigError, InvalidRequestError

PARIS = "The capital of France is"
TURN = [
    {"role": "user", "content": "Think, then answer."},
    {"role": "assistant", "content": "<think>It is easy.</think>Yes."},
]
THINKING = [*TURN * 3, TURN[0]]  # the model repeats what it has done three times


@pytest.fixture(scope="module")
def llm(default_model: Path) -> Iterator[LLM]:
    with LLM(
        str(default_model), reasoning_parser="qwen3", max_model_len=512, kv_cache_memory=64 << 20
    ) as model:
        yield model


def greedy(**params: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 6, **params})


def test_prompt_logprobs_are_those_the_tokens_have_when_generated(llm: LLM) -> None:
    answer = llm.generate(PARIS, greedy(logprobs=2, ignore_eos=True))[0]
    ids = answer.prompt_token_ids + answer.outputs[0].token_ids
    [scored] = llm.generate([ids], greedy(max_tokens=0, prompt_logprobs=2))
    assert scored.prompt_logprobs is not None
    assert len(scored.prompt_logprobs) == len(ids)
    assert scored.prompt_logprobs[0] is None
    for generated, read in zip(
        answer.outputs[0].logprobs, scored.prompt_logprobs[len(answer.prompt_token_ids) :], strict=True
    ):
        assert read is not None
        assert read.chosen == pytest.approx(generated.chosen, abs=1e-4)
        assert (read.top_ids, read.rank) == (generated.top_ids, 1)


def test_without_tokens_to_generate_the_answer_is_empty(llm: LLM) -> None:
    [output] = llm.generate(PARIS, greedy(max_tokens=0))
    [choice] = output.outputs
    assert (choice.text, choice.token_ids, choice.finish_reason) == ("", [], "length")
    assert output.prompt_logprobs is None


def test_a_prompt_that_is_only_scored_may_fill_the_context(llm: LLM) -> None:
    [output] = llm.generate([[5] * 512], greedy(max_tokens=0, prompt_logprobs=0))
    assert output.prompt_logprobs is not None
    assert len(output.prompt_logprobs) == 512


def test_a_single_token_has_no_score(llm: LLM) -> None:
    assert llm.generate([[5]], greedy(prompt_logprobs=1))[0].prompt_logprobs == [None]


def test_best_of_returns_the_likeliest_of_more(llm: LLM) -> None:
    params: dict[str, Any] = {"temperature": 1.5, "seed": 3, "max_tokens": 8, "ignore_eos": True}
    everything = llm.generate(PARIS, SamplingParams(n=6, logprobs=0, **params))[0].outputs
    best = llm.generate(PARIS, SamplingParams(n=2, best_of=6, **params))[0].outputs
    ranked = sorted(everything, key=lambda choice: -(choice.cumulative_logprob or -math.inf))
    assert [choice.token_ids for choice in best] == [choice.token_ids for choice in ranked[:2]]
    assert [choice.index for choice in best] == [0, 1]
    assert all(choice.logprobs == [] for choice in best)
    with pytest.raises(InvalidRequestError, match="best_of must be n in a stream"):
        llm.stream(PARIS, SamplingParams(best_of=2))


def test_the_answer_is_one_of_the_choices(llm: LLM) -> None:
    params = greedy(guided_choice=("Berlin", "Madrid", "Paris"), max_tokens=None)
    [choice] = llm.chat([{"role": "user", "content": "What is the capital of France?"}], params)[0].outputs
    assert (choice.text, choice.finish_reason) == ("Paris", "stop")
    random = llm.generate(PARIS, SamplingParams(guided_choice=(" Rome", " Oslo"), temperature=2.0, n=8))
    assert {choice.text for choice in random[0].outputs} <= {" Rome", " Oslo"}
    with pytest.raises(InvalidRequestError, match="twice"):
        llm.generate(PARIS, greedy(guided_choice=("a", "a")))


def test_bad_words_do_not_come(llm: LLM) -> None:
    assert "Paris" in llm.generate(PARIS, greedy())[0].outputs[0].text
    assert "Paris" not in llm.generate(PARIS, greedy(bad_words=("Paris",)))[0].outputs[0].text


def test_only_allowed_tokens_come(llm: LLM) -> None:
    allowed = tuple(llm.tokenizer.encode("0123456789"))
    text = llm.generate(PARIS, greedy(allowed_token_ids=allowed))[0].outputs[0].text
    assert text.isdigit()


def test_the_last_message_can_be_continued(llm: LLM) -> None:
    messages = [
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "The capital of France is"},
    ]
    output = llm.chat(messages, greedy(), continue_final_message=True)[0]
    assert output.outputs[0].text.startswith(" Paris")
    assert llm.tokenizer.decode(output.prompt_token_ids).endswith("France is")
    with pytest.raises(InvalidRequestError, match="exclude each other"):
        llm.chat(messages, greedy(), continue_final_message=True, add_generation_prompt=True)


def test_a_prompt_may_end_without_opening_a_turn(llm: LLM) -> None:
    message = [{"role": "user", "content": "hi"}]
    opened = llm.chat(message, greedy(max_tokens=1))[0].prompt_token_ids
    bare = llm.chat(message, greedy(max_tokens=1), add_generation_prompt=False)[0].prompt_token_ids
    assert opened[: len(bare)] == bare
    assert len(bare) < len(opened)


def test_reasoning_is_parted_from_the_answer(llm: LLM) -> None:
    [choice] = llm.chat(THINKING, greedy(max_tokens=24))[0].outputs
    assert (choice.reasoning, choice.text) == ("It is easy.", "Yes.")
    chunks = list(llm.stream(THINKING, greedy(max_tokens=24)))
    assert "".join(chunk.reasoning for chunk in chunks) == "It is easy."
    assert "".join(chunk.text for chunk in chunks) == "Yes."


def test_a_continued_message_may_break_off_inside_its_reasoning(llm: LLM) -> None:
    messages = [*THINKING, {"role": "assistant", "content": "<think>It is"}]
    [choice] = llm.chat(messages, greedy(max_tokens=24), continue_final_message=True)[0].outputs
    assert (choice.reasoning, choice.text) == (" easy.", "Yes.")


def test_completions_have_no_reasoning(llm: LLM) -> None:
    choice = llm.generate("<think>hm</think>", greedy())[0].outputs[0]
    assert choice.reasoning is None


def test_an_unknown_parser_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(ConfigError, match="reasoning_parser must be one of"):
        LLM("no/such-model", reasoning_parser="thoughts")
