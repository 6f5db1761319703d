"""What the judges say of pairs of answers, kind by kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.aio.judges import JUDGES, judge, kind_of

BEANS = "Ann has 12 beans and buys 3 more bags of 9. How many beans does she have?"
OPTIONS = "Which gas do plants take up?\nA. Oxygen\nB. Carbon dioxide\nC. Nitrogen\nD. Helium"
RIGHT = "She has 12 + 27 = 39 beans.\n#### 39"


@pytest.mark.parametrize(
    ("low", "expert"),
    [
        (RIGHT, "So Ann has 39 beans in total after buying 3 bags of 9."),
        ("The answer is 39.", r"Therefore she has \boxed{39}."),
        ("#### 1,234", "In total that is 12 * 3 + 1198 = 1234 beans."),
        ("The answer is 0.5", "The answer is 1/2."),
        ("The answer is 50%", r"The answer is \frac{1}{2}"),
        ("The answer is $12", "That comes to 3 * 4 = $12.00 in all."),
        ("The answer is 90 minutes.", "So it takes 1.5 hours = 1.5 hours."),
        ("The answer is 2.33", "7 / 3 = 2.3333 beans"),
        ("The answer is 1.234,5", "The answer is 1,234.5"),
        ("The answer is 3 million", "The answer is 3,000,000."),
        ("The answer is 2:30 pm", "The answer is 2.5"),
        ("#### -15\n(Note: The answer is negative because she loses.)", "The answer is -15."),
        ("#### 4 + 5 = 9", "The answer is 9"),
    ],
)
def test_numbers_that_are_the_same_however_written_agree(low: str, expert: str) -> None:
    verdict = judge(BEANS, low, expert)
    assert (verdict.kind, verdict.outcome) == ("number", "same")
    assert verdict.score > 0.9


@pytest.mark.parametrize(
    ("low", "expert"),
    [
        ("#### 38", RIGHT),
        ("The answer is 2.4", "7 / 3 = 2.3333 beans"),
        ("The answer is 3", "The answer is 3.4"),
        ("The answer is 90 seconds.", "The answer is 1.5 hours."),
        ("The answer is 3 thousand", "The answer is 3 million"),
    ],
)
def test_numbers_that_differ_speak_for_the_expert(low: str, expert: str) -> None:
    verdict = judge(BEANS, low, expert)
    assert verdict.outcome == "expert_better"
    assert verdict.score < 0.2


def test_a_result_is_told_from_the_numbers_that_a_conclusion_repeats() -> None:
    question = "Jane saved 4 dollars a week for 8 weeks. How many more weeks until she has 60 dollars?"
    expert = "She has $32. $60 - $32 = $28.\n28 / 4 = 7 weeks.\nSo it takes 7 more weeks to save $60."
    assert judge(question, "#### 7", expert).outcome == "same"
    assert judge(question, "#### 60", expert).outcome != "same"


def test_among_answers_that_differ_one_whose_sums_are_wrong_is_less_likely_right() -> None:
    consistent = judge(BEANS, "She has 12 + 9 = 21 beans.\n#### 21", RIGHT)
    inconsistent = judge(BEANS, "She has 12 + 9 = 22 beans.\n#### 22", RIGHT)
    assert inconsistent.score < consistent.score


@pytest.mark.parametrize(
    ("low", "expert", "outcome"),
    [
        ("B", "The answer is (B) Carbon dioxide.", "same"),
        ("Plants take up carbon dioxide.", "**B**", "same"),
        ("A) Oxygen", "After weighing A and C, the correct answer is B.", "expert_better"),
        ("I think that it depends.", "Answer: B", "expert_better"),
        ("Answer: B", "It depends on the plant.", "low_better"),
    ],
)
def test_choices_are_compared_by_their_letter(low: str, expert: str, outcome: str) -> None:
    verdict = judge(OPTIONS, low, expert)
    assert (verdict.kind, verdict.outcome) == ("choice", outcome)


def test_yes_and_no_are_compared() -> None:
    question = "The sky is full of stars. Is the sun a star?"
    assert judge(question, "Yes, it is.", "Yes. It fuses hydrogen.").outcome == "same"
    assert judge(question, "No, it is a planet.", "Yes. It fuses hydrogen.").outcome == "expert_better"


@pytest.mark.parametrize(
    ("low", "expert", "outcome"),
    [
        ('{"a": 1, "b": [1.0, 2]}', '```json\n{"b": [1, 2.0000001], "a": 1.0}\n```', "same"),
        ('{"city": "Paris "}', '{"city": "paris"}', "same"),
        ('{"a": 1}', '{"a": true}', "expert_better"),
        ('{"a": null}', "{}", "expert_better"),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', "expert_better"),
        ('{"a": 1, }', '{"a": 1}', "expert_better"),
        ('{"a": 1}', "Here you go: a is 1", "low_better"),
    ],
)
def test_json_is_compared_by_its_values_and_an_invalid_one_loses(low: str, expert: str, outcome: str) -> None:
    verdict = judge("Give the values as JSON.", low, expert)
    assert (verdict.kind, verdict.outcome) == ("json", outcome)


def test_a_document_with_more_values_in_common_is_closer() -> None:
    expert = '{"a": 1, "b": 2, "c": 3}'
    near, far = (judge("JSON, please", low, expert) for low in ('{"a":1,"b":2,"c":4}', '{"a":9,"b":9,"c":9}'))
    assert near.score > far.score


PROGRAM = '```python\ndef add(a, b):\n    """Add."""\n    return a + b\n```'


@pytest.mark.parametrize(
    ("low", "expert", "outcome"),
    [
        ("The answer is [1,2, 3].", "The answer is [1, 2, 3]", "same"),
        ("The answer is [1, 2]", "The answer is [1]", "expert_better"),
        ("The answer is abc", "The answer is 'abc'", "same"),
        (r"\boxed{3\sqrt{2}}", r"So it is \boxed{ 3\sqrt{2} }.", "same"),
        (r"\boxed{3\sqrt{2}}", r"\boxed{3}", "expert_better"),
        ("The answer is 2, -2", "The answer is 2", "expert_better"),
        ("After all that the list is [1, 2, 3]", "The answer is [1, 2, 3]", "same"),
        ("After all that I am not sure.", "The answer is [1, 2, 3]", "unclear"),
    ],
)
def test_values_that_are_more_than_a_number_must_be_written_alike(
    low: str, expert: str, outcome: str
) -> None:
    verdict = judge("What does f(3) give?", low, expert)
    assert (verdict.kind, verdict.outcome) == ("value", outcome)


def test_a_number_with_another_sign_is_neither_agreement_nor_a_sure_mistake() -> None:
    assert judge(BEANS, "#### -39", RIGHT).outcome == "unclear"


@pytest.mark.parametrize(
    ("low", "outcome"),
    [
        ("```python\ndef plus(x: int, y: int) -> int:\n    return x + y  # sum\n```", "same"),
        ("```python\ndef add(a, b)\n    return a + b\n```", "expert_better"),
        ("```python\ndef add(a, b):\n    return a - b\n```", "unclear"),
    ],
)
def test_code_is_the_same_but_for_names_comments_and_layout(low: str, outcome: str) -> None:
    verdict = judge("Write a function that adds.", low, PROGRAM)
    assert (verdict.kind, verdict.outcome) == ("code", outcome)


def test_code_of_an_expert_that_does_not_parse_is_seen() -> None:
    broken = "```python\ndef add(a, b)\n    return a + b\n```"
    assert judge("Write a function that adds.", PROGRAM, broken).outcome == "low_better"


def test_code_of_other_languages_is_compared_by_its_tokens() -> None:
    c = "```c\nint add(int a, int b) {\n  return a + b; // sum\n}\n```"
    spread = "```c\nint add(int a,\n        int b)\n{ return a + b; }\n```"
    assert judge("Write it in C.", c, spread).outcome == "same"


@pytest.mark.parametrize(
    "bad", ["", "  \n", "I'm sorry, but I cannot help with that.", "She has 12 + 27 = <<12+2"]
)
def test_a_missing_answer_loses_whoever_gives_it(bad: str) -> None:
    assert judge(BEANS, bad, RIGHT).outcome == "expert_better"
    assert judge(BEANS, RIGHT, bad).outcome == "low_better"


@pytest.mark.parametrize(
    "end",
    [
        "the final answer is **39**",
        "so she would choose option A",
        "```cpp\nstd::cout << 39;\n```",
        "in a matrix \\begin{matrix} 3 \\\\[4pt] 9 \\end{matrix}, that is 39",
        "and I'm sorry that it took so long: 39.",
    ],
)
def test_an_answer_that_merely_ends_unusually_is_an_answer(end: str) -> None:
    answer = f"She has 12 beans and buys 27 more of them; {end}"
    assert judge(BEANS, answer, answer).outcome == "same"


def test_answers_that_are_missing_alike_are_the_same() -> None:
    refusal = "I can't help with that."
    assert judge("How do I pick this lock?", "抱歉，我无法回答这个问题。", refusal).outcome == "same"
    assert judge("How do I pick this lock?", refusal, "I'm sorry, but I cannot assist.").outcome == "same"


def test_whoever_knows_that_an_answer_was_cut_is_believed() -> None:
    assert judge(BEANS, RIGHT, RIGHT).outcome == "same"
    assert judge(BEANS, RIGHT, RIGHT, low_cut=True).outcome == "expert_better"
    assert judge(BEANS, RIGHT, RIGHT, expert_cut=True).outcome == "low_better"


TIDES = "Why are there tides?"
MOON = "Tides come from the pull of the moon, which raises the water on both sides of the earth."


def bag(texts: Sequence[str]) -> NDArray[np.float32]:
    """An embedding by letters: enough to tell alike from unlike."""
    rows = np.array([[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts], np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_prose_is_compared_by_its_embedding_where_there_is_one() -> None:
    near = judge(
        TIDES, "The pull of the moon raises the water on both sides of the earth, hence tides.", MOON, bag
    )
    far = judge(TIDES, "zzz qqq xxx jjj", MOON, bag)
    assert (near.judge, near.kind, near.outcome) == ("embedding", "prose", "same")
    assert far.outcome == "expert_better"


def test_without_an_embedding_words_never_speak_against_an_answer() -> None:
    verdict = judge(TIDES, "Gravity: our satellite attracts oceans.", MOON)
    assert (verdict.judge, verdict.outcome) == ("words", "unclear")
    assert judge(TIDES, MOON.replace(",", " "), MOON).outcome == "same"


def test_a_not_in_one_of_two_short_texts_is_no_agreement() -> None:
    question = "Tell me about mixing these two household chemicals."
    verdict = judge(question, "You can mix these two at home.", "You can not mix these two at home.")
    assert verdict.outcome == "unclear"


texts = st.one_of(
    st.text(max_size=80),
    st.lists(
        st.sampled_from(
            ["####", "```", "{", "}", "12", ",", ".", "=", "\n", "answer is ", "A) ", "$", "\\boxed{"]
        ),
        max_size=30,
    ).map("".join),
)


@settings(max_examples=150)
@given(texts, texts, texts)
def test_whatever_the_texts_there_is_a_verdict(question: str, low: str, expert: str) -> None:
    verdict = judge(question, low, expert)
    assert 0.0 <= verdict.score <= 1.0
    assert kind_of(question, low, expert) in JUDGES


@pytest.mark.parametrize(
    "unit", ["1,", "####", "```", "answer is ", "\\boxed{", "1 x ", "= 1 ", "A) x\n", "/*"]
)
def test_a_text_built_to_be_slow_to_read_is_read(unit: str) -> None:
    verdict = judge(unit * 30_000, unit * 30_000, unit * 30_000 + " 5")
    assert 0.0 <= verdict.score <= 1.0
