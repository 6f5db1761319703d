"""What if: past requests once more, on another ladder, at other prices, with another target or predictor.

Nothing is asked of any model. A request's prompt and the length of its answer are what they were (for another
tier as much longer or shorter as was expected); its quality is what was predicted, then or by the predictor
that is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from penstock.aio.books import cost_at
from penstock.aio.choose import Ladder
from penstock.aio.decision import Candidate, Decision
from penstock.aio.predictor import Predictor
from penstock.aio.query import Query, query_of_text
from penstock.aio.steps import Step, capped, held_out, take, weighed

TARGET: Final = 0.95  # of what was never routed, unless another is asked for


@dataclass(slots=True)
class Share:
    """What went to one tier."""

    requests: int = 0
    cost: int = 0  # picodollars


@dataclass(slots=True)
class Mix:
    """Where requests went, what their answers cost (picodollars), and how good they are expected to be."""

    requests: int = 0
    cost: int = 0
    expert_cost: int = 0  # had the expert answered all of them
    quality: float = 0.0  # sums of probabilities
    expert_quality: float = 0.0
    tiers: dict[str, Share] = field(default_factory=dict)

    def add(self, tier: Candidate, cost: int, expert: Candidate, expert_cost: int) -> None:
        self.requests += 1
        self.cost += cost
        self.expert_cost += expert_cost
        self.quality += tier.quality
        self.expert_quality += expert.quality
        share = self.tiers.setdefault(tier.tier, Share())
        share.requests += 1
        share.cost += cost


class Replay:
    """Without `steps` every decision keeps its own ladder, and what was never routed gets `otherwise`;
    without `target` a decision keeps its own.

    `anew`: rate queries again, with `predictor`, rather than believe what was predicted then; that takes
    their texts. `tiers` leaves only these on the ladder.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        steps: Sequence[Step] | None = None,
        otherwise: Sequence[Step] = (),
        tiers: Sequence[str] | None = None,
        target: float | None = None,
        caution: float = 0.0,
        max_cost: int | None = None,
        anew: bool = False,
    ) -> None:
        self._predictor = predictor
        self._steps = steps
        self._otherwise = otherwise
        self._tiers = tiers
        self._target = target
        self._caution = caution
        self._max_cost = max_cost
        self._anew = anew
        self._ladders: dict[tuple[Step, ...], Ladder] = {}
        self.before = Mix()
        self.after = Mix()
        self.lower = self.higher = 0  # requests that would have gone to a cheaper, or a dearer, tier
        self.pinned = 0  # not the router's choice, then or now

    def add(self, decision: Decision) -> str | None:
        """Route a request again; a sentence if that is not possible."""
        answered = decision.candidate(decision.answered)
        if answered is None:
            return "nobody answered it"
        if decision.pinned:
            self.pinned += 1
            return None
        steps = self._kept(
            self._steps
            if self._steps is not None
            else [Step(each.tier, each.reference, each.price, each.why_not) for each in decision.candidates]
        )
        if not steps:
            return self._no_tier()
        strange = [
            step.reference for step in steps if step.reference not in self._predictor.sample.references
        ]
        if strange:
            return f"its ladder has a tier like {strange[0]!r}, which the predictor does not know"
        rated = self._rated(decision, steps)
        if isinstance(rated, str):
            return rated
        chosen = self._chosen(rated, steps, decision.target)
        if chosen is None:
            return "no tier is able to answer it, or none within the cap"
        self._count(decision, answered, rated, rated[chosen])
        return None

    def add_query(self, query: Query) -> str | None:
        """Route a request of which only the text is known: there is no before, and lengths are guessed."""
        steps = self._kept(self._otherwise if self._steps is None else self._steps)
        if not steps:
            return self._no_tier()
        rating = self._predictor.rate(query, [step.reference for step in steps])
        rated = weighed(steps, rating, query.prompt_tokens, max_cost=self._max_cost)
        chosen = self._chosen(rated, steps, TARGET)
        if chosen is None:
            return "no tier is able to answer it, or none within the cap"
        self.after.add(rated[chosen], rated[chosen].cost, rated[-1], rated[-1].cost)
        return None

    def _no_tier(self) -> str:
        return f"none of the tiers {', '.join(self._tiers or ())} is on its ladder"

    def _kept(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple(step for step in steps if self._tiers is None or step.tier in self._tiers)

    def _chosen(self, rated: Sequence[Candidate], steps: tuple[Step, ...], target: float) -> int | None:
        rungs = tuple(Step(step.tier, step.reference, step.price) for step in steps)
        ladder = self._ladders.get(rungs)
        if ladder is None:
            ladder = self._ladders[rungs] = held_out(rungs, self._predictor).ladder(self._caution)
        rate = ladder.threshold(target if self._target is None else self._target).rate
        return take(rated, rate, self._caution)[0]

    def _rated(self, decision: Decision, steps: Sequence[Step]) -> list[Candidate] | str:
        """Every step for this request, by what was predicted then where it was."""
        then = {candidate.tier: candidate for candidate in decision.candidates}
        by_reference = {candidate.reference: candidate for candidate in decision.candidates}
        known = [then.get(step.tier) or by_reference.get(step.reference) for step in steps]
        same = all(
            found is not None and found.reference == step.reference
            for found, step in zip(known, steps, strict=True)
        )
        if self._anew or not same:
            if decision.text is None:
                return "its text was not kept, and what was predicted then is not what is asked for now"
            rating = self._predictor.rate(query_of_text(decision.text), [step.reference for step in steps])
            return weighed(steps, rating, decision.prompt_tokens, max_cost=self._max_cost)
        return [
            capped(
                replace(
                    found,
                    tier=step.tier,
                    price=step.price,
                    cost=step.price.cost(decision.prompt_tokens, 0, found.output_tokens),
                    able=found.able or found.barred,  # a cap of then is not one of now
                    barred=False,
                ),
                decision.prompt_tokens,
                self._max_cost,
            )
            for found, step in zip(known, steps, strict=True)
            if found is not None
        ]

    def _count(
        self, decision: Decision, answered: Candidate, rated: Sequence[Candidate], chosen: Candidate
    ) -> None:
        expert = decision.candidates[-1]
        self.before.add(answered, decision.cost, expert, cost_at(decision, expert, answered))
        cost, expert_cost = (self._cost(decision, answered, each) for each in (chosen, rated[-1]))
        self.after.add(chosen, cost, rated[-1], expert_cost)
        self.lower += cost < decision.cost and chosen.tier != answered.tier
        self.higher += cost > decision.cost and chosen.tier != answered.tier

    @staticmethod
    def _cost(decision: Decision, answered: Candidate, tier: Candidate) -> int:
        if tier.tier == answered.tier and tier.price != answered.price:
            return tier.price.cost(decision.prompt_tokens, decision.cached_tokens, decision.output_tokens)
        return cost_at(decision, tier, answered)
