"""What is measured of a query, and the region it belongs to."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.aio.features import FEATURES, features
from penstock.aio.query import Query, query_of_text
from penstock.aio.regions import REGIONS, region

CHOICE = "Which of the following is NOT a prime?\nA. 2\nB. 3\nC. 9\nD. None of the above"


def of(text: str) -> dict[str, float]:
    return dict(zip(FEATURES, features(query_of_text(text)).tolist(), strict=True))


def test_every_feature_has_one_name() -> None:
    assert len(set(FEATURES)) == len(FEATURES) == len(features(Query("")))


def test_a_choice_is_recognised_with_its_options() -> None:
    found = of(CHOICE)
    assert (found["is_choice"], found["options"]) == (1.0, 0.5)
    assert found["which_of_following"] == found["shouted_negation"] == found["all_of_above"] == 1.0
    assert of("Is A. Smith the author? I think so.")["is_choice"] == 0.0


def test_numbers_formulas_and_code_leave_their_marks() -> None:
    assert of("Solve $x^2 = \\frac{1}{2}$.")["latex"] > of("Solve it.")["latex"] == 0.0
    assert of("def f(x):\n    return x == 1\n")["code"] > 0.0
    assert (
        of("She has 3 apples, 4.5 pears and 1/2 a melon.")["log_numbers"]
        > of("She has fruit.")["log_numbers"]
    )


def test_the_question_word_nearest_the_end_counts() -> None:
    found = of("When the war ended, who became king?")
    assert (found["asks_who"], found["asks_when"]) == (1.0, 0.0)


def test_words_of_a_field_raise_that_field() -> None:
    law, physics = (
        of("The plaintiff sued the defendant in court."),
        of("What force gives the mass its acceleration?"),
    )
    assert law["about_law"] > law["about_physics"]
    assert physics["about_physics"] > physics["about_law"]


@pytest.mark.parametrize("text", ["", "\ud800", "？" * 500, "x" * 5000, "1" * 5000, "A. \nB. \nC. "])
def test_strange_texts_have_finite_bounded_features(text: str) -> None:
    found = features(query_of_text(text))
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 12


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "empty"),
        ("Write a Python function that sorts a list.", "code/write"),
        ("Find $\\frac{1}{2} + x^2$.", "maths/formula"),
        ("Tom has 3 apples and buys 4 more. How many does he have?", "maths/story"),
        ("The plaintiff sued the defendant for breach of contract.", "law"),
        ("Какая сегодня погода в Москве?", "script/cyrillic"),
        ("今日の天気はどうですか", "script/kana"),
        ("Wie ist das Wetter und warum ist es nicht gut?", "foreign"),
        ("hello there", "chat"),
    ],
)
def test_regions_keep_their_names(text: str, name: str) -> None:
    assert region(query_of_text(text)) == name


def test_there_are_few_regions() -> None:
    assert len(set(REGIONS)) == len(REGIONS) <= 40
