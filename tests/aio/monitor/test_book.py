"""Verdicts that add up: regions promoted and restored, predictions corrected."""

from __future__ import annotations

import random

import pytest

from penstock.aio.judges.verdict import Outcome
from penstock.aio.monitor import Promotion, QualityBook, RetrainRule

DAY = 86_400.0


def feed(
    book: QualityBook, outcomes: str, *, region: str = "maths", at: float = 0.0, tenant: str = "default"
) -> list[bool]:
    """`+` is a good answer, `^` beats the expert's, `-` is beaten by it, `?` is unclear. What changed."""
    names: dict[str, Outcome] = {"+": "same", "-": "expert_better", "?": "unclear", "^": "low_better"}
    changes = [
        book.add("small", region, names[mark], at + i, tenant=tenant) for i, mark in enumerate(outcomes)
    ]
    return [change.promoted for change in changes if change]


def test_a_bare_ratio_under_the_threshold_changes_nothing() -> None:
    book = QualityBook()
    assert feed(book, "-" * 15) == []
    assert feed(book, "++++-" * 10, region="law") == []
    assert book.promoted() == []


def test_a_region_is_promoted_when_quality_is_surely_low_and_others_are_not() -> None:
    book = QualityBook()
    feed(book, "+" * 40, region="law")
    assert feed(book, "-" * 16) == [True]
    assert book.is_promoted("small", "maths")
    assert not book.is_promoted("small", "law")
    assert not book.is_promoted("large", "maths")


def test_a_long_good_past_does_not_excuse_a_tier_that_broke() -> None:
    book = QualityBook()
    assert feed(book, "+" * 500 + "-" * 16) == [True]


def test_answers_that_beat_the_expert_are_good_and_unclear_verdicts_do_not_count() -> None:
    book = QualityBook()
    assert feed(book, "^?" * 100) == []
    # Unclear ones are no part of a run: the sixteenth clear one is needed.
    assert feed(book, "-?" * 15, region="law") == []
    assert feed(book, "?-", region="law", at=100) == [True]


def test_a_promoted_region_comes_back_when_probes_show_that_it_has_recovered() -> None:
    book = QualityBook()
    assert feed(book, "-" * 30) == [True]
    assert feed(book, "+" * 23, at=100) == []
    assert feed(book, "+", at=200) == [False]
    assert not book.is_promoted("small", "maths")
    # The bad past is past: it does not promote the region again.
    assert feed(book, "+-+++", at=300) == []


def test_what_was_good_before_a_promotion_is_no_sign_of_recovery() -> None:
    book = QualityBook()
    assert feed(book, "+" * 490 + "-" * 16) == [True]
    assert feed(book, "+", at=1000) == []
    # Nor is it where another process has promoted, and this one reads the verdicts later.
    late = QualityBook()
    late.restore([Promotion("small", "maths", "default", 506.0)])
    assert feed(late, "+" * 490 + "-" * 16 + "+") == []
    assert late.is_promoted("small", "maths")


def test_verdicts_are_forgotten_with_time() -> None:
    book = QualityBook(max_age=10 * DAY)
    feed(book, "-" * 15)
    assert feed(book, "-", at=11 * DAY) == []


def test_a_promoted_region_that_is_half_good_stays_promoted() -> None:
    book = QualityBook()
    feed(book, "-" * 16)
    assert feed(book, "+-" * 200, at=100) == []
    assert book.is_promoted("small", "maths")


def test_a_book_built_again_from_the_same_verdicts_is_the_same() -> None:
    rng = random.Random(3)
    marks = "".join("+" if rng.random() < (0.9 if i < 300 else 0.3) else "-" for i in range(400))
    live, again = QualityBook(), QualityBook()
    feed(live, marks)
    assert live.promoted()
    feed(again, marks)
    assert again.promoted() == live.promoted()
    # Where early verdicts have been pruned, the promotions that were stored stand in for them.
    rest = QualityBook()
    rest.restore(live.promoted())
    feed(rest, marks[350:], at=350)
    assert rest.promoted() == live.promoted()


def test_a_tenants_questions_promote_for_that_tenant_alone() -> None:
    book = QualityBook()
    feed(book, "+" * 40, tenant="b")
    assert feed(book, "-" * 16, tenant="a", at=100) == [True]
    feed(book, "-" * 600, tenant="a", at=200)
    assert book.is_promoted("small", "maths", "a")
    assert not book.is_promoted("small", "maths", "b")
    assert not book.is_promoted("small", "maths", "a newcomer")
    assert feed(book, "+" * 24, tenant="a", at=900) == [False]
    assert book.promoted() == []


def test_what_several_tenants_meet_is_promoted_for_all_and_nobody_can_bring_it_back_alone() -> None:
    book = QualityBook()
    changes = [book.add("small", "maths", "expert_better", float(i), tenant="ab"[i % 2]) for i in range(16)]
    assert [change for change in changes if change] == [changes[-1]]
    assert changes[-1] is not None
    assert changes[-1].tenant is None
    assert changes[-1].reason == (
        "0 of the latest 16 answers were good enough: quality is at most 0.58, under 0.85, "
        "whichever of 2 tenants is left out."
    )
    assert book.is_promoted("small", "maths", "a newcomer")
    feed(book, "-", tenant="b", at=50)
    assert feed(book, "+" * 300, tenant="a", at=100) == []
    assert book.is_promoted("small", "maths", "b")
    assert feed(book, "+" * 100, tenant="b", at=400) == [False]
    assert not book.is_promoted("small", "maths", "b")


def test_others_few_bad_answers_do_not_carry_a_tenants_many() -> None:
    book = QualityBook()
    feed(book, "-" * 7, tenant="b")
    assert feed(book, "-" * 16, tenant="a", at=100) == [True]
    feed(book, "-" * 100, tenant="a", at=200)
    assert not book.is_promoted("small", "maths", "b")


def test_what_one_tenant_meets_corrects_nothing_for_others() -> None:
    book = QualityBook()
    for i in range(200):
        book.add("small", "maths", "expert_better", float(i), predicted=0.9, tenant="a")
    assert book.corrected("small", "maths", 0.9, "a") < 0.6
    assert book.corrected("small", "maths", 0.9, "b") == 0.9
    for i in range(20):
        book.add("small", "maths", "same", 200.0 + i, predicted=0.9, tenant="b")
    assert book.corrected("small", "maths", 0.9, "b") > 0.9
    # What two others have met alike is worth something to a third.
    for i in range(100):
        book.add("small", "law", "expert_better", float(i), predicted=0.9, tenant="ab"[i % 2])
    assert book.corrected("small", "law", 0.9, "c") < 0.7


def test_a_reason_is_a_sentence_with_its_figures() -> None:
    book = QualityBook()
    changes = [book.add("small", "maths", "expert_better", float(i)) for i in range(16)]
    assert changes[-1] is not None
    assert changes[-1].reason == (
        "0 of the latest 16 answers were good enough: quality is at most 0.40, under 0.85."
    )


def test_old_verdicts_count_less_in_a_correction() -> None:
    book = QualityBook()
    for at, outcome in ((0.0, "expert_better"), (28 * DAY, "same")):
        for _ in range(100):
            book.add("small", "maths", outcome, at, predicted=0.5)  # type: ignore[arg-type]
    assert book.corrected("small", "maths", 0.5) > 0.8


def test_predictions_are_shifted_by_how_they_fared_and_keep_their_order() -> None:
    book = QualityBook()
    for i in range(200):
        book.add("small", "maths", "same" if i % 2 else "expert_better", float(i), predicted=0.9)
        book.add("small", "law", "expert_better" if i % 10 == 0 else "same", float(i), predicted=0.9)
    low, high = (book.corrected("small", "maths", p) for p in (0.7, 0.9))
    assert 0.5 < high < 0.6
    assert low < high
    assert book.corrected("small", "law", 0.9) == pytest.approx(0.9, abs=0.01)
    assert book.corrected("small", "unseen", 0.9) == 0.9


def test_a_new_predictor_is_not_corrected_for_the_old_ones_mistakes() -> None:
    book = QualityBook()
    for i in range(100):
        book.add("small", "maths", "expert_better", float(i), predicted=0.9)
    assert book.corrected("small", "maths", 0.9) < 0.7
    book.use_predictions_since(100.0)
    assert book.corrected("small", "maths", 0.9) == 0.9


def test_learning_waits_for_the_bound_not_for_the_ratio() -> None:
    rule = RetrainRule()
    assert rule.reason(10, 3, 0.0, 2 * DAY) is None
    assert "at least 2" in (rule.reason(200, 60, 0.0, 2 * DAY) or "")
    assert rule.reason(200, 60, 0.0, 0.5 * DAY) is None, "the latest attempt was this morning"
    assert rule.reason(200, 10, 0.0, 6.9 * DAY) is None
    assert "200 new verdicts" in (rule.reason(200, 10, 0.0, 7 * DAY) or "")
    assert rule.reason(20, 1, 0.0, 30 * DAY) is None, "nothing new to learn from"
