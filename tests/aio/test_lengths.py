"""That nobody can talk the router into expecting longer answers than there are."""

from __future__ import annotations

import pytest

from penstock.aio.books import RouteTally
from penstock.aio.lengths import MOST_TOKENS, OutputLengths


@pytest.mark.parametrize("absurd", [10**8, 10**400], ids=["large", "no float"])
def test_one_absurd_count_changes_next_to_nothing(absurd: int) -> None:
    lengths = OutputLengths()
    for _ in range(20):
        lengths.add("low", "maths", 100)
    before = lengths.expected("low", "maths")
    lengths.add("low", "maths", absurd)
    assert lengths.expected("low", "maths") < before * 1.2
    lengths.pair("low", absurd, 1)
    lengths.pair("middle", 1, absurd)
    assert 0.9 < lengths.ratio("middle") < lengths.ratio("low") < 1.15


def test_an_answer_counts_for_no_more_than_its_request_allowed_or_anybody_writes() -> None:
    lengths = OutputLengths()
    for _ in range(2000):
        lengths.add("low", "maths", 10**9, most=100)
    assert lengths.expected("low", "maths") <= 110
    for _ in range(5000):
        lengths.add("low", "code", 10**9)
    assert lengths.expected("low", "code") <= MOST_TOKENS


def test_what_the_books_recall_is_bounded_likewise() -> None:
    usual = {("a", f"day {day}", "low"): RouteTally(requests=100, output_tokens=10_000) for day in range(30)}
    lengths = OutputLengths()
    lengths.recall(usual)
    before = lengths.expected("low", "maths")
    assert before == pytest.approx(100, rel=0.1)
    absurd = RouteTally(requests=50_000, output_tokens=10**12, as_good=1, paired_tokens=10**12)
    absurd.paired_expert_tokens = 1
    lengths = OutputLengths()
    lengths.recall({**usual, ("b", "day 1", "low"): absurd})
    assert lengths.expected("low", "maths") < before * 1.3
