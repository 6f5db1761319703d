"""Reasoning is parted from the answer, however the text falls into pieces."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import hub
from penstock.errors import ConfigError
from penstock.text.reasoning import FAMILIES, Family, Reasoning, Splitter, find_family, reasoning_of
from penstock.text.tokenizer import Tokenizer

THINK = find_family("think", None)
GRANITE = find_family("granite", None)
assert THINK is not None
assert GRANITE is not None


def split(family: Family, pieces: list[str], inside: bool = False) -> tuple[str, str]:
    splitter = Splitter(Reasoning(family, family.begins[0] if inside else ""))
    parts = [splitter.push(piece) for piece in pieces]
    parts.append(splitter.finish())
    return "".join(part.reasoning for part in parts), "".join(part.text for part in parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>hm</think>yes", ("hm", "yes")),
        ("<think>\nhm\nhm \n</think>\n\nyes\n", ("hm\nhm", "yes\n")),
        ("\n <think>hm</think> yes", ("hm", "yes")),
        ("yes", ("", "yes")),
        (" yes", ("", " yes")),
        ("yes <think>no</think>", ("", "yes <think>no</think>")),
        ("<think></think>yes", ("", "yes")),
        ("<think>\n\n</think>\n\nyes", ("", "yes")),
        ("<think>never ends", ("never ends", "")),
        ("<think>breaks off </thi", ("breaks off </thi", "")),
        ("<thi", ("", "<thi")),
        ("<", ("", "<")),
        ("  ", ("", "  ")),
        ("", ("", "")),
        ("<think>a</think>b</think>c", ("a", "b</think>c")),
        ("<think>a <think> b</think>c", ("a <think> b", "c")),
        ("<think>a</think", ("a</think", "")),
        ("</think>yes", ("", "</think>yes")),
    ],
)
def test_what_is_thought_and_what_is_answered(text: str, expected: tuple[str, str]) -> None:
    assert split(THINK, [text]) == expected
    assert split(THINK, list(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\nhm\n</think>\n\nyes", ("hm", "yes")),
        ("never ends", ("never ends", "")),
        ("</think>yes", ("", "yes")),
    ],
)
def test_a_prompt_may_have_opened_the_reasoning(text: str, expected: tuple[str, str]) -> None:
    assert split(THINK, [text], inside=True) == expected
    assert split(THINK, list(text), inside=True) == expected


def test_granite_says_it_in_words() -> None:
    text = "Here is my thought process:\n\nHere is a hm.\n\nHere's my response: yes. Here is my response: no"
    expected = ("Here is a hm.", "yes. Here is my response: no")
    assert split(GRANITE, [text]) == expected
    assert split(GRANITE, list(text)) == expected


def test_text_goes_out_as_soon_as_it_can_be_no_mark() -> None:
    splitter = Splitter(Reasoning(THINK))
    assert splitter.push("<think>ab <") == ("ab", "")
    assert splitter.push("b") == (" <b", "")
    assert splitter.push("</think>x") == ("", "x")
    assert splitter.push("<") == ("", "<")


MARKS = [mark for family in FAMILIES for mark in (*family.begins, *family.ends)]
FRAGMENTS = st.one_of(
    st.sampled_from(MARKS),
    st.sampled_from(MARKS).flatmap(lambda mark: st.integers(1, len(mark)).map(lambda size: mark[:size])),
    st.sampled_from(["\n", " ", "\u2003", "x", "<", "/", "Here "]),
    st.text(max_size=3),
)


@given(st.sampled_from(FAMILIES), st.lists(FRAGMENTS, max_size=8).map("".join), st.booleans(), st.data())
def test_any_chunking_gives_the_same_parts(
    family: Family, text: str, inside: bool, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(family, pieces, inside) == split(family, [text], inside) == split(family, list(text), inside)


@given(st.sampled_from(FAMILIES), st.lists(FRAGMENTS, max_size=8).map("".join))
def test_no_character_is_made_up_and_only_marks_and_white_space_are_lost(family: Family, text: str) -> None:
    thought, answer = split(family, [text])
    if not thought and answer == text:
        return
    begun = next(mark for mark in family.begins if text.lstrip().startswith(mark))
    rest = text.lstrip()[len(begun) :]
    ends = [rest.partition(mark) for mark in family.ends]
    before, _, after = min(ends, key=lambda parts: len(parts[0]))
    assert (thought, answer) == (before.strip(), after.lstrip())


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ messages }}", None),
        (None, None),
        ("{% if x %}<think>\n{% endif %}", "think"),
        ("{{ content.split('</think>')[-1] }}", "think"),
        ("[THINK]{{ x }}[/THINK]", "mistral"),
        ("... write 'Here is my thought process:' first ...", "granite"),
    ],
)
def test_the_template_tells_the_family(template: str | None, name: str | None) -> None:
    family = find_family("auto", template)
    assert (family and family.name) == name
    assert find_family("none", template) is None


def test_a_family_can_be_named_in_several_ways_and_others_are_refused() -> None:
    assert find_family("deepseek_r1", None) is find_family("qwen3", "no marks") is THINK
    with pytest.raises(ConfigError, match=r"one of auto, none, .*granite.*, got 'gemma'"):
        find_family("gemma", None)


def test_where_a_prompt_leaves_off_decides_where_the_answer_begins() -> None:
    assert THINK.opened_by("<|im_start|>assistant\n<think>\n")
    assert not THINK.opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not THINK.opened_by("<think><|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # Inside the reasoning the text goes on as it was, a space at the border included.
        ("<think>It is", (" 4.", "So 4.")),
        ([{"type": "text", "text": "<thi"}, {"type": "text", "text": "nk>It is"}], (" 4.", "So 4.")),
        ("<think>\n", ("4.", "So 4.")),
        ("<think>It is ", (" 4.", "So 4.")),
        ([{"type": "text", "text": "<think>It is</think>"}, {"type": "text", "text": "Yes"}], None),
        # Further on the marks are text.
        ("<think>It is</think>Yes <think>", None),
        ("It is <think>", None),
        (None, None),
    ],
)
def test_a_continued_message_is_parted_where_it_breaks_off(
    default_model: Path, content: object, expected: tuple[str, str] | None
) -> None:
    tokenizer = Tokenizer.load(hub.resolve(str(default_model)))
    found = reasoning_of(THINK, tokenizer, [1], {"role": "assistant", "content": content})
    assert found is not None
    splitter = Splitter(found)
    parts = [splitter.push(" 4.\n</think> So 4."), splitter.finish()]
    text = "".join(part.reasoning for part in parts), "".join(part.text for part in parts)
    assert text == (expected or ("", " 4.\n</think> So 4."))
    assert splitter.reasoned is (expected is not None)


def test_a_continued_question_has_no_reasoning(default_model: Path) -> None:
    tokenizer = Tokenizer.load(hub.resolve(str(default_model)))
    assert reasoning_of(THINK, tokenizer, [1], {"role": "user", "content": "What is <think>"}) is None
