"""Why a query goes where it goes: and what is said to change the choice does change it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from penstock.aio.choose import ALWAYS_EXPERT
from penstock.aio.decision import COST_CAP, Price
from penstock.aio.explain import Explanation, explain
from penstock.aio.predictor import load_predictor
from penstock.aio.query import query_of_text
from penstock.aio.steps import TOO_DEAR, USUAL, Step, example, held_out, reference_at, take
from penstock.errors import ConfigError
from tests.aio.weighing import REFERENCES, STEPS, Plain

PLAIN = Plain()


def asked(hardness: float, target: float = 0.9, **options: int) -> Explanation:
    return explain(query_of_text(f"hardness {hardness}"), PLAIN, STEPS, target, **options)  # type: ignore[arg-type]


def test_harder_queries_go_to_better_tiers() -> None:
    chosen = [asked(hardness).chosen for hardness in (-6, 0, 1.5)]
    assert chosen == [0, 1, 2]


def test_the_words_that_count_most_come_first() -> None:
    found = asked(1.5)
    assert [each.name for each in found.words] == ["1.5", "hardness"]
    assert found.words[0].log_odds == pytest.approx([-1.5] * 3)
    assert found.words[1].strength == 0
    assert found.features == []  # there are none
    assert (found.predictor, found.version, found.region) == ("plain", "7", "plain")


def test_what_the_shipped_predictor_leans_on_adds_up_to_its_log_odds() -> None:
    predictor = load_predictor("light")
    query = query_of_text("Prove that there are infinitely many primes, or say why that is false.")
    found = explain(query, predictor, example(predictor.sample.references), 0.95)
    odds = [math.log(each.quality / (1 - each.quality)) for each in found.candidates]
    assert np.sum([each.log_odds for each in found.features], axis=0) == pytest.approx(odds, abs=1e-3)
    strengths = [each.strength for each in found.features]
    assert strengths == sorted(strengths, reverse=True)
    assert {"usual", "text"} < {each.name for each in found.features}


def test_the_other_targets_are_where_the_choice_changes() -> None:
    found = asked(0.0)
    assert found.chosen == 1
    assert found.lower is not None
    assert found.higher is not None
    assert (found.lower.tier, found.higher.tier) == ("simple", "expert")
    assert found.lower.target < 0.9 < found.higher.target
    assert asked(0.0, found.lower.target - 0.03).chosen == 0
    assert asked(0.0, found.lower.target + 0.03).chosen == 1
    assert asked(0.0, found.higher.target - 0.01).chosen == 1
    assert asked(0.0, found.higher.target + 0.01).chosen == 2


def test_the_other_price_is_where_the_choice_changes() -> None:
    found = asked(-4.25)
    assert found.chosen == 1
    (other,) = found.prices
    assert other.tier == "simple"
    for share, chosen in ((other.share * 1.02, 1), (other.share * 0.98, 0)):
        simple = replace(found.candidates[0], cost=round(found.candidates[0].cost * share))
        assert take([simple, *found.candidates[1:]], found.threshold.rate)[0] == chosen


def test_no_target_beyond_the_expert_is_offered() -> None:
    """Where a lower tier is better, a choice by quality alone beats the expert; nobody asks so much."""
    steps = [
        STEPS[0],
        Step("medium", "large", Price(request=100_000)),
        Step("expert", "middle", STEPS[2].price),
    ]
    found = explain(query_of_text("hardness -6"), PLAIN, steps, 0.99)
    assert found.chosen == 0
    assert found.higher is None


def test_a_cap_on_the_cost_is_kept_and_said() -> None:
    found = asked(1.5, max_cost=500_000)
    assert (found.chosen, found.forced) == (1, COST_CAP)
    assert found.candidates[2].why_not == TOO_DEAR
    assert (found.lower, found.higher, found.prices) == (None, None, [])
    assert asked(1.5, max_cost=5_000).chosen is None
    assert asked(-6, max_cost=500_000).forced == ""


def test_a_tier_that_cannot_is_not_chosen_and_forces_nothing() -> None:
    steps = [Step("simple", "small", Price(request=10_000), "it has no tools"), *STEPS[1:]]
    found = explain(query_of_text("hardness -6"), PLAIN, steps, 0.9)
    assert (found.chosen, found.forced) == (1, "")


def test_a_target_that_cannot_be_met_leaves_the_expert() -> None:
    found = asked(-6, 1.0)
    if found.threshold.rate == ALWAYS_EXPERT:
        assert found.chosen == 2
    assert found.threshold.quality >= 0.99


def test_a_rate_stands_for_the_target_it_came_from() -> None:
    sample = held_out(STEPS, PLAIN)
    threshold = sample.ladder().threshold(0.9)
    assert sample.at_rate(threshold.rate).quality == pytest.approx(threshold.quality)


def test_steps_that_do_not_say_whom_they_are_like_are_spread() -> None:
    assert [reference_at(number, 2, REFERENCES) for number in range(2)] == ["small", "large"]
    many = ("tiny", *USUAL[:2], "other", *USUAL[2:], "huge")
    assert [reference_at(number, 4, many) for number in range(4)] == list(USUAL)
    assert [reference_at(number, 3, many) for number in range(3)] == [USUAL[0], USUAL[2], USUAL[3]]
    assert [step.reference for step in example(("a", "b", "c", "d"))] == ["a", "b", "c", "d"]
    assert example(REFERENCES)[-1].price == Price(request=10**10)


def test_a_reference_that_nobody_has_measured_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'mine' is like 'unheard-of'.*small, middle, large"):
        held_out([Step("mine", "unheard-of", Price())], PLAIN)
