"""Beam search of the Python API: the default model finds what transformers finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from penstock import LLM, BeamSearchParams
from penstock.errors import ContextLengthError, InvalidRequestError

PROMPTS = [
    "The capital of France is",
    "Once upon a time in",
    "Water boils at a temperature",
    "The three primary colours are",
    "To make tea, you",
    "A prime number is a",
    "The largest planet is the",
    "My favourite animal is the",
    "In 1969,",
    "She opened the door and",
    "def reverse(text):",
    "The opposite of hot is",
    "Two plus two is equal",
    "The sun rises in the",
    "Shakespeare wrote many plays",
    "The recipe needs eggs,",
    "He lost his keys, so",
    "Rivers flow into the",
    "Bees make honey from the",
    "The first month of the year is",
]
TOKENS = 24
WIDTH = 4


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    # Small blocks: a round computes the partial block of every beam anew.
    with LLM(precision="float32", max_model_len=256, kv_cache_memory=128 << 20, block_size=4) as model:
        yield model


def theirs(model: Any, llm: LLM, batch: list[list[int]]) -> list[list[int]]:
    """transformers' best hypotheses."""
    with torch.no_grad():
        found = model.generate(
            torch.tensor(batch),
            attention_mask=torch.ones(len(batch), len(batch[0]), dtype=torch.long),
            num_beams=WIDTH,
            do_sample=False,
            max_new_tokens=TOKENS,
            eos_token_id=list(llm.tokenizer.eos_token_ids),
            pad_token_id=0,
        )
    answers = []
    for row in found[:, len(batch[0]) :].tolist():
        end = next((at for at, token in enumerate(row) if token in llm.tokenizer.eos_token_ids), len(row) - 1)
        answers.append(row[: end + 1])
    return answers


def test_the_best_answers_equal_those_of_transformers(llm: LLM, default_reference: Any) -> None:
    # All of one length: transformers computes them together, and without padding.
    prompts = [llm.tokenizer.encode(prompt)[:5] for prompt in PROMPTS]
    assert {len(prompt) for prompt in prompts} == {5}
    outputs = llm.beam_search(prompts, BeamSearchParams(beam_width=WIDTH, max_tokens=TOKENS))
    assert all(len(output.outputs) == WIDTH for output in outputs)
    for prompt, output, expected in zip(
        PROMPTS, outputs, theirs(default_reference, llm, prompts), strict=True
    ):
        assert output.outputs[0].token_ids == expected, prompt
    assert llm.stats().running == 0


def test_hypotheses_come_as_choices_the_best_first(llm: LLM) -> None:
    params = BeamSearchParams(beam_width=3, n=2, max_tokens=6)
    [output] = llm.beam_search("The capital of France is", params)
    assert output.prompt == "The capital of France is"
    assert [choice.index for choice in output.outputs] == [0, 1]
    assert output.outputs[0].text == llm.tokenizer.decode(output.outputs[0].token_ids)
    assert output.outputs[0].token_ids != output.outputs[1].token_ids
    assert {choice.finish_reason for choice in output.outputs} == {"length"}


def test_a_stop_token_ends_a_hypothesis_and_is_named(llm: LLM) -> None:
    comma = llm.tokenizer.encode(",")[0]
    params = BeamSearchParams(beam_width=2, max_tokens=12, stop_token_ids=(comma,), ignore_eos=True)
    [output] = llm.beam_search("One, two, three", params)
    ended = [choice for choice in output.outputs if choice.finish_reason == "stop"]
    assert ended
    assert all(choice.stop_reason == comma and "," not in choice.text for choice in ended)


def test_a_search_ends_where_the_context_does(llm: LLM) -> None:
    ids = llm.tokenizer.encode("one two three " * 100)[:250]
    [output] = llm.beam_search(ids, BeamSearchParams(beam_width=2, max_tokens=50, ignore_eos=True))
    assert len(output.outputs[0].token_ids) == 6
    with pytest.raises(ContextLengthError):
        llm.beam_search([1] * 256, BeamSearchParams(beam_width=2))
    assert not llm.engine.has_work


def test_what_cannot_be_searched_is_refused(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="fewer beams or stop_token_ids"):
        llm.beam_search("x", BeamSearchParams(beam_width=64, stop_token_ids=tuple(range(200))))
    with pytest.raises(InvalidRequestError, match="empty"):
        llm.beam_search([[]])
