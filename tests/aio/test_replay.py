"""What if: past requests on other ladders, at other prices and targets."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.aio.decision import PINNED_BY_TENANT, Candidate, Decision, Price
from penstock.aio.query import query_of_text
from penstock.aio.replay import Replay
from penstock.aio.steps import Step
from tests.aio.weighing import STEPS, Plain, chance

PLAIN = Plain()


def routed(hardness: float, answered: int, text: bool = False) -> Decision:
    return Decision(
        request="r",
        at=0.0,
        tenant="acme",
        region="plain",
        model_version="7",
        target=0.9,
        candidates=[
            Candidate(
                tier=step.tier,
                reference=step.reference,
                quality=chance(step.reference, hardness),
                price=step.price,
                output_tokens=100,
                cost=step.price.request,
            )
            for step in STEPS
        ],
        chosen=STEPS[answered].tier,
        answered=STEPS[answered].tier,
        prompt_tokens=100,
        output_tokens=50,
        cost=STEPS[answered].price.request,
        text=f"hardness {hardness}" if text else None,
    )


LOG = [routed(-6, 0), routed(0, 1), routed(1.5, 2)]


def test_the_same_again_changes_nothing() -> None:
    again = Replay(PLAIN)
    assert [again.add(decision) for decision in LOG] == [None] * 3
    assert again.before == again.after
    assert (again.after.requests, again.after.cost, again.after.expert_cost) == (3, 1_110_000, 3_000_000)
    assert (again.lower, again.higher) == (0, 0)
    assert {tier: share.requests for tier, share in again.after.tiers.items()} == {
        "simple": 1,
        "medium": 1,
        "expert": 1,
    }


def test_a_lower_target_is_cheaper_and_worse() -> None:
    again = Replay(PLAIN, target=0.5)
    for decision in LOG:
        again.add(decision)
    assert again.after.cost < again.before.cost
    assert again.after.quality < again.before.quality
    assert again.lower > 0 == again.higher
    assert again.before.cost == 1_110_000


def test_another_ladder_at_other_prices() -> None:
    steps = [Step("small", "small", Price(output=1)), Step("big", "large", Price(output=7))]
    again = Replay(PLAIN, steps=steps, target=0.9)
    assert [again.add(decision) for decision in LOG] == [None] * 3
    assert set(again.after.tiers) == {"small", "big"}
    assert again.after.expert_cost == 3 * 50 * 7
    assert again.before.expert_cost == 3_000_000


def test_a_tier_with_another_price_costs_what_was_used_at_that_price() -> None:
    steps = [
        replace_price(step, Price(input=1, output=2, request=10_000)) if step.tier == "simple" else step
        for step in STEPS
    ]
    again = Replay(PLAIN, steps=steps)
    again.add(LOG[0])
    assert (again.before.cost, again.after.cost) == (10_000, 100 + 2 * 50 + 10_000)


def replace_price(step: Step, price: Price) -> Step:
    return Step(step.tier, step.reference, price)


def test_tiers_can_be_taken_away() -> None:
    again = Replay(PLAIN, tiers=["simple", "expert"])
    for decision in LOG:
        assert again.add(decision) is None
    assert "medium" not in again.after.tiers
    why = Replay(PLAIN, tiers=["nobody"]).add(LOG[0])
    assert why is not None
    assert "nobody" in why


def test_what_was_pinned_or_never_answered_is_left_out() -> None:
    again = Replay(PLAIN)
    assert again.add(replace(LOG[0], forced=PINNED_BY_TENANT)) is None
    assert again.add(replace(LOG[0], answered="")) == "nobody answered it"
    assert (again.pinned, again.after.requests) == (1, 0)


def test_another_predictor_needs_the_text() -> None:
    again = Replay(PLAIN, anew=True)
    why = again.add(LOG[0])
    assert why is not None
    assert "text was not kept" in why
    assert again.add(routed(1.5, 0, text=True)) is None
    assert (again.higher, again.after.tiers["expert"].requests) == (1, 1)


def test_a_reference_that_was_not_weighed_then_needs_the_text() -> None:
    steps = [Step("simple", "middle", Price(request=5)), STEPS[2]]
    again = Replay(PLAIN, steps=steps)
    assert again.add(LOG[0]) is not None
    assert again.add(routed(-6, 0, text=True)) is None
    assert again.after.cost == 5


def test_a_log_of_models_that_the_predictor_has_not_seen_is_left_out() -> None:
    strange = replace(LOG[0].candidates[1], reference="unheard-of")
    why = Replay(PLAIN).add(replace(LOG[0], candidates=[LOG[0].candidates[0], strange]))
    assert why is not None
    assert "'unheard-of'" in why


def test_a_cap_then_is_not_one_now_and_the_other_way_round() -> None:
    barred = replace(LOG[2].candidates[2], able=False, barred=True)
    decision = replace(LOG[2], candidates=[*LOG[2].candidates[:2], barred], answered="medium", cost=100_000)
    again = Replay(PLAIN)
    again.add(decision)
    assert set(again.after.tiers) == {"expert"}
    capped = Replay(PLAIN, max_cost=100_000)
    capped.add(LOG[2])
    assert set(capped.after.tiers) == {"medium"}
    assert Replay(PLAIN, max_cost=100).add(LOG[2]) is not None


def test_requests_that_were_never_routed_have_no_before() -> None:
    again = Replay(PLAIN, otherwise=STEPS, target=0.9)
    for hardness in (-6, 0, 1.5):
        assert again.add_query(query_of_text(f"hardness {hardness}")) is None
    assert (again.before.requests, again.after.requests, again.after.cost) == (0, 3, 1_110_000)
