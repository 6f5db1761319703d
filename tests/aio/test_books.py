"""Honest books: what is counted, what is not, and that sums stay sums."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.aio.books import FIELDS, RouteTally, Tallies, book, book_verdict, merge
from penstock.aio.decision import (
    COST_CAP,
    PINNED_BY_HEADER,
    PROMOTED,
    Attempt,
    Candidate,
    Decision,
    PassedOver,
    Price,
)
from penstock.aio.lengths import OutputLengths

DAY = "2026-01-31"
HOUR = 3_600_000_000  # picodollars for an hour of a CPU: one for a microsecond


def candidate(
    tier: str, quality: float, price: int, output_tokens: int = 100, able: bool = True
) -> Candidate:
    return Candidate(
        tier=tier,
        reference=tier,
        quality=quality,
        deviation=0.05,
        price=Price(price, price // 10, price),
        output_tokens=output_tokens,
        able=able,
    )


def decision(**changes: object) -> Decision:
    fields: dict[str, object] = {
        "request": "r1",
        "at": 1_769_817_600.0,
        "tenant": "acme",
        "region": "maths",
        "model_version": "1",
        "target": 0.95,
        "candidates": [
            candidate("simple", 0.6, 10),
            candidate("medium", 0.8, 50),
            candidate("expert", 0.9, 1000),
        ],
        "chosen": "simple",
        "answered": "simple",
        "outcome": "ok",
        "prompt_tokens": 200,
        "output_tokens": 50,
        "cost": 2_500,
    }
    return Decision(**{**fields, **changes})  # type: ignore[arg-type]


def at(tallies: Tallies, tier: str) -> RouteTally:
    return tallies["acme", DAY, tier]


def test_an_answer_is_booked_beside_what_every_other_tier_would_have_cost() -> None:
    books = book(decision(), DAY, 0)
    simple, medium, expert = (at(books, tier) for tier in ("simple", "medium", "expert"))
    assert (simple.requests, simple.cost, simple.expert_cost) == (1, 2_500, 250 * 1000)
    assert (simple.quality, simple.deviation, simple.expert_quality) == (600_000, 50_000, 900_000)
    assert (medium.requests, medium.weighed, medium.would_cost) == (0, 1, 250 * 50)
    assert expert.would_cost == simple.expert_cost
    assert simple.would_cost == simple.cost


def test_the_expert_saves_nothing_against_itself() -> None:
    expert = at(book(decision(chosen="expert", answered="expert", cost=999), DAY, 0), "expert")
    assert (expert.cost, expert.expert_cost, expert.by_expert) == (999, 999, 1)


def test_cached_prompts_are_cached_at_the_expert_as_well() -> None:
    simple = at(book(decision(cached_tokens=200), DAY, 0), "simple")
    assert simple.expert_cost == 200 * 100 + 50 * 1000


def test_a_wordier_expert_is_dearer_but_not_beyond_what_the_request_allows() -> None:
    ladder = [candidate("simple", 0.6, 10, 100), candidate("expert", 0.9, 1000, 300)]
    assert at(book(decision(candidates=ladder), DAY, 0), "simple").expert_cost == (200 + 150) * 1000
    capped = decision(candidates=ladder, most_output_tokens=64)
    assert at(book(capped, DAY, 0), "simple").expert_cost == (200 + 64) * 1000


def test_who_cannot_answer_is_replaced_by_the_next_one_up_else_down() -> None:
    ladder = [
        candidate("simple", 0.6, 10, able=False),
        candidate("medium", 0.8, 50),
        candidate("expert", 0.9, 1000, able=False),
    ]
    books = book(decision(candidates=ladder, chosen="medium", answered="medium", cost=12_345), DAY, 0)
    assert [at(books, tier).would_cost for tier in ("simple", "medium", "expert")] == [12_345] * 3
    assert at(books, "simple").would_quality == 800_000
    assert (at(books, "medium").expert_cost, at(books, "medium").by_expert) == (12_345, 1)


def test_a_pinned_tier_is_counted_apart_and_saves_nothing() -> None:
    books = book(decision(forced=PINNED_BY_HEADER), DAY, HOUR)
    assert books == {("acme", DAY, "simple"): RouteTally(pinned=1, pinned_cost=2_500)}


def test_the_classifier_is_paid_for_even_where_nobody_answers() -> None:
    books = book(decision(answered="", outcome="failed", cost=0, classifier_seconds=0.0015), DAY, HOUR)
    tally = RouteTally(chosen=1, unanswered=1, classifier_nanoseconds=1_500_000, classifier_cost=1500)
    assert books == {("acme", DAY, "simple"): tally}


def test_discarded_answers_and_tiers_passed_over_are_booked_where_they_happened() -> None:
    tried = decision(
        answered="expert",
        cost=250_000,
        cascade=[
            Attempt(tier="simple", cost=2_000, why="it refused"),
            Attempt(tier="simple", cost=500, why="a further sample", sample=True),
        ],
        passed_over=[PassedOver(tier="medium", why="it is down")],
    )
    books = book(tried, DAY, 0)
    simple, medium, expert = (at(books, tier) for tier in ("simple", "medium", "expert"))
    assert (simple.chosen, simple.requests, simple.discarded, simple.cascade_cost) == (1, 0, 1, 2_500)
    assert (medium.passed_over, expert.requests, expert.cost) == (1, 1, 250_000)


def test_promotions_and_caps_are_counted() -> None:
    assert at(book(decision(forced=PROMOTED), DAY, 0), "simple").promoted == 1
    assert at(book(decision(forced=COST_CAP), DAY, 0), "simple").capped == 1


def test_a_verdict_adds_its_outcome_its_cost_and_both_lengths() -> None:
    def booked(outcome: str) -> RouteTally:
        return at(book_verdict("acme", DAY, "simple", outcome, 70, 40, 60), "simple")

    pair = {"monitor_cost": 70, "paired_tokens": 40, "paired_expert_tokens": 60}
    assert booked("same") == RouteTally(as_good=1, **pair)
    assert booked("low_better") == RouteTally(as_good=1, better=1, **pair)
    assert booked("expert_better") == RouteTally(worse=1, **pair)
    assert booked("unclear") == RouteTally(unclear=1, **pair)
    probe = book_verdict("acme", DAY, "simple", "expert_better", 70, 40, 60, probe=True)
    assert at(probe, "simple") == RouteTally(**pair)  # nobody was given that answer


amounts = st.builds(
    lambda numbers: RouteTally(**dict(zip(FIELDS, numbers, strict=True))),
    st.lists(st.integers(0, 10**20), min_size=len(FIELDS), max_size=len(FIELDS)),
)


@given(st.lists(st.dictionaries(st.sampled_from([("a", "d", "t"), ("b", "d", "t")]), amounts), max_size=5))
def test_tallies_add_up_in_any_order_and_leave_their_parts_alone(batches: list[Tallies]) -> None:
    forwards: Tallies = {}
    backwards: Tallies = {}
    for batch in batches:
        merge(forwards, batch)
    for batch in reversed(batches):
        merge(backwards, batch)
    assert forwards == backwards
    for account, tally in forwards.items():
        assert tally.would_cost == sum(batch[account].would_cost for batch in batches if account in batch)


def test_lengths_begin_with_a_guess_and_follow_what_comes() -> None:
    lengths = OutputLengths()
    assert lengths.expected("simple", "maths") == 256
    assert lengths.expected("simple", "maths", most=16) == 16
    for _ in range(3000):
        lengths.add("simple", "maths", 1000)
        lengths.add("simple", "facts", 10)
    assert 950 < lengths.expected("expert", "maths") <= 1000
    assert lengths.expected("expert", "facts") < 20
    assert 95 < lengths.expected("expert", "never seen") < 105  # a mean of logarithms


def test_what_is_usual_is_not_said_before_answers_of_the_kind_were_seen() -> None:
    lengths = OutputLengths()
    for _ in range(19):
        assert lengths.usual("simple", "maths") is None
        lengths.add("simple", "maths", 1000)
    lengths.add("expert", "maths", 1000)
    assert lengths.usual("simple", "maths") == 1000
    assert lengths.usual("simple", "facts") is None


def test_hard_questions_do_not_make_a_tier_wordy_but_pairs_do() -> None:
    lengths = OutputLengths()
    for _ in range(1000):
        lengths.add("simple", "facts", 20)
        lengths.add("expert", "proofs", 2000)
    assert lengths.ratio("simple") == lengths.ratio("expert") == 1.0
    for _ in range(1000):
        lengths.pair("simple", 20, 60)
    assert 0.33 < lengths.ratio("simple") < 0.36
    assert lengths.expected("simple", "facts") < lengths.expected("expert", "facts")


def test_lengths_are_remembered_from_the_books() -> None:
    day = {
        ("acme", DAY, "simple"): RouteTally(
            requests=5000,
            output_tokens=100_000,
            as_good=1000,
            paired_tokens=20_000,
            paired_expert_tokens=60_000,
        ),
        ("acme", DAY, "expert"): RouteTally(requests=5000, output_tokens=300_000),
    }
    lengths = OutputLengths()
    lengths.recall(day)
    assert 0.35 < lengths.ratio("simple") < 0.42
    assert 50 < lengths.expected("expert", "maths") < 65
    assert lengths.expected("simple", "maths") < 30
    for _ in range(2000):
        lengths.add("expert", "maths", 500)
    assert lengths.expected("expert", "maths") > 400  # what was long ago fades
