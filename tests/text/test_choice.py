"""A choice with reasoning: which tokens are whose, wherever the marks fall."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.request import SamplingParams, TokenEvent, TokenLogprobs
from penstock.text.choice import Choice
from penstock.text.reasoning import Family, Reasoning, Splitter, find_family
from penstock.text.tokenizer import Tokenizer

THINK = find_family("think", None)
assert THINK is not None


def feed(choice: Choice, tokenizer: Tokenizer, text: str, end: str = "length") -> list[tuple[str, str]]:
    """One event for each token of the text, the last with the end; what each one added."""
    ids = tokenizer.encode(text)
    added = []
    for number, token in enumerate(ids):
        event = TokenEvent(request_id="", token_ids=[token], logprobs=[TokenLogprobs(-float(number), [], [])])
        if number == len(ids) - 1:
            event.finish_reason = end
        added.append(tuple(choice.take(event)))
    return added


def new(tokenizer: Tokenizer, inside: bool = False, family: Family = THINK, **params: Any) -> Choice:
    return Choice(
        0, tokenizer, SamplingParams(**params), [], Reasoning(family, family.begins[0] if inside else "")
    )


def test_marks_split_over_tokens_never_show(tokenizer: Tokenizer) -> None:
    choice = new(tokenizer)
    added = feed(choice, tokenizer, "<think>It is easy.</think>\n\nYes, it is.")
    assert (choice.reasoning, choice.text) == ("It is easy.", "Yes, it is.")
    assert "".join(thought for thought, _ in added) == choice.reasoning
    assert "".join(text for _, text in added) == choice.text
    first_text = next(number for number, (_, text) in enumerate(added) if text)
    assert not any(thought for thought, _ in added[first_text:])


def test_reasoning_tokens_are_those_up_to_the_end_mark(tokenizer: Tokenizer) -> None:
    choice = new(tokenizer)
    feed(choice, tokenizer, "<think>It is easy.</think>Yes.")
    assert choice.reasoning_tokens == len(tokenizer.encode("<think>It is easy.</think>"))
    assert len(choice.logprobs) == len(choice.shown_ids)
    assert choice.cumulative_logprob == -sum(range(len(choice.token_ids)))


def test_an_answer_without_reasoning_is_all_answer(tokenizer: Tokenizer) -> None:
    choice = new(tokenizer)
    feed(choice, tokenizer, "Yes. <think> is a tag.")
    assert (choice.reasoning, choice.text, choice.reasoning_tokens) == (None, "Yes. <think> is a tag.", 0)


def test_an_end_inside_the_reasoning_leaves_the_answer_empty(tokenizer: Tokenizer) -> None:
    choice = new(tokenizer, inside=True)
    feed(choice, tokenizer, "Let me think about </thi")
    assert (choice.reasoning, choice.text, choice.finish_reason) == ("Let me think about </thi", "", "length")
    assert choice.reasoning_tokens == len(choice.token_ids)


def test_a_stop_string_cuts_reasoning_as_it_cuts_text(tokenizer: Tokenizer) -> None:
    choice = new(tokenizer, stop=("easy",))
    feed(choice, tokenizer, "<think>It is easy.</think>Yes.")
    assert (choice.reasoning, choice.text) == ("It is", "")
    assert (choice.finish_reason, choice.stop_reason) == ("stop", "easy")


def test_a_stop_string_may_be_the_mark_itself(tokenizer: Tokenizer) -> None:
    choice = new(tokenizer, stop=("</think>",))
    feed(choice, tokenizer, "<think>It is easy.</think>Yes.")
    assert (choice.reasoning, choice.text, choice.stop_reason) == ("It is easy.", "", "</think>")


def test_control_tokens_that_mark_reasoning_are_seen_though_they_are_hidden(tokenizer: Tokenizer) -> None:
    family = Family("control", ("<|im_start|>",), ("<|im_end|>",))
    text = "<|im_start|>hm<|im_end|>yes<|endoftext|>"
    choice = new(tokenizer, family=family)
    feed(choice, tokenizer, text)
    assert (choice.reasoning, choice.text) == ("hm", "yes")


TEXTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<thi", "</", "\n", " ", "hm", "yes", "é🙂", "STOP", "ST", "."]),
    max_size=10,
).map("".join)


@given(TEXTS, st.booleans(), st.booleans(), st.data())
def test_however_tokens_come_the_parts_are_those_of_the_whole_text(
    tokenizer: Tokenizer, text: str, inside: bool, stops: bool, data: st.DataObject
) -> None:
    ids = tokenizer.encode(text)
    params = {"stop": ("STOP", "yes.")} if stops else {}
    choice = new(tokenizer, inside=inside, **params)
    thought = answer = ""
    while ids and choice.finish_reason is None:
        size = data.draw(st.integers(1, len(ids)))
        event = TokenEvent(request_id="", token_ids=ids[:size])
        ids = ids[size:]
        if not ids:
            event.finish_reason = "length"
        added = choice.take(event)
        assert not (added.reasoning and answer), "reasoning after the answer began"
        thought, answer = thought + added.reasoning, answer + added.text
    cut = min((at for stop in params.get("stop", ()) if (at := text.find(stop)) >= 0), default=len(text))
    splitter = Splitter(Reasoning(THINK, "<think>" if inside else ""))
    expected = [splitter.push(text[:cut]), splitter.finish()]
    assert thought == "".join(part.reasoning for part in expected) == (choice.reasoning or "")
    assert answer == "".join(part.text for part in expected) == choice.text


@pytest.mark.parametrize("event", [TokenEvent(request_id="", finish_reason="length")])
def test_a_choice_of_no_tokens_ends_too(tokenizer: Tokenizer, event: TokenEvent) -> None:
    choice = new(tokenizer)
    assert choice.take(event) == ("", "")
    assert choice.finish_reason == "length"
    assert choice.mean_logprob == float("-inf")
