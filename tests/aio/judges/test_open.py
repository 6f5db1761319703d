"""Where two answers need not agree, that they do not is no verdict."""

from __future__ import annotations

import pytest

from penstock.aio.judges import judge
from penstock.aio.judges.open import is_open


@pytest.mark.parametrize(
    "question",
    [
        "What is the sum of a random number and 2?",
        "Pick a number between 1 and 100.",
        "Choose one of these animals at random: cat, dog.",
        "Tell me a joke.",
        "Write a short, sad poem about the sea.",
        "Give me three random facts.",
        "Flip a coin.",
        "Erzähl mir einen Witz.",
    ],
)
def test_what_is_drawn_or_made_up_is_never_called_worse_for_being_different(question: str) -> None:
    assert is_open(question)
    assert judge(question, "4", "7").outcome == "unclear"
    assert judge(question, "7", "7").outcome == "same"


@pytest.mark.parametrize(
    "question",
    [
        "What is the sum of 2 and 2?",
        "A ball is drawn at random. What is the probability that it is red?",
        "Let X be a random number from 1 to 9. What is its expected value?",
        "What is random access memory?",
        "How many minutes does Ann take to write a story of 20 pages?",
        "Who wrote the poem The Raven?",
    ],
)
def test_what_has_one_answer_is_not_open(question: str) -> None:
    assert not is_open(question)


def test_an_empty_answer_is_worse_whatever_was_asked() -> None:
    assert judge("Tell me a joke.", "", "Why did the chicken cross the road?").outcome == "expert_better"
