"""Why a query goes where it goes, and what would send it elsewhere."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from penstock.aio.choose import Threshold, shares
from penstock.aio.decision import Candidate
from penstock.aio.leanings import Contribution, leanings
from penstock.aio.predictor import Predictor, Rating
from penstock.aio.query import Query
from penstock.aio.steps import HeldOut, Step, held_out, take, weighed

_MOST_WORDS: Final = 40
_MOST_RATE: Final = 100.0  # quality is at most 1, so beyond this only cost counts


@dataclass(frozen=True, slots=True)
class OtherTarget:
    """The quality target at which another tier would be chosen."""

    tier: str
    target: float


@dataclass(frozen=True, slots=True)
class OtherPrice:
    """The share of its present price at which a tier would be chosen."""

    tier: str
    share: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """`chosen` is a position on the ladder; None: nobody is able, or nobody within the cap."""

    predictor: str
    version: str
    region: str
    threshold: Threshold
    candidates: list[Candidate]
    values: list[float]  # what is compared: quality, less doubt, less cost at the rate
    chosen: int | None
    forced: str
    features: list[Contribution]  # the strongest first; none of a predictor that is no sum of them
    words: list[Contribution]
    lower: OtherTarget | None
    higher: OtherTarget | None
    prices: list[OtherPrice]


def explain(
    query: Query,
    predictor: Predictor,
    steps: Sequence[Step],
    target: float,
    *,
    caution: float = 0.0,
    max_cost: int | None = None,
    most_output: int | None = None,
) -> Explanation:
    sample = held_out(steps, predictor)
    threshold = sample.ladder(caution).threshold(target)
    references = [step.reference for step in steps]
    rating = predictor.rate(query, references)
    candidates = weighed(steps, rating, query.prompt_tokens, most_output=most_output, max_cost=max_cost)
    chosen, forced = take(candidates, threshold.rate, caution)
    worth = [_worth(candidate, caution, candidate is candidates[-1]) for candidate in candidates]
    costs = shares([float(candidate.cost) for candidate in candidates])
    lower = higher = None
    prices: list[OtherPrice] = []
    if chosen is not None and not forced:
        lower, higher = _other_targets(candidates, worth, costs, chosen, threshold.rate, sample, caution)
        prices = _other_prices(candidates, worth, costs, chosen, threshold.rate)
    return Explanation(
        predictor=predictor.name,
        version=predictor.version,
        region=rating.region,
        threshold=threshold,
        candidates=candidates,
        values=[value - threshold.rate * cost for value, cost in zip(worth, costs, strict=True)],
        chosen=chosen,
        forced=forced,
        features=_strongest(leanings(predictor, query, references, rating)),
        words=_strongest(_by_words(query, predictor, references, rating)),
        lower=lower,
        higher=higher,
        prices=prices,
    )


def _by_words(
    query: Query, predictor: Predictor, references: Sequence[str], rating: Rating
) -> list[Contribution]:
    """What each word of the question changes by being there."""
    counts = Counter(query.ask.split()[:_MOST_WORDS])
    before = [_log_odds(quality) for quality in rating.quality]
    found = []
    for word, count in counts.items():
        rest = " ".join(each for each in query.ask.split() if each != word)
        without = predictor.rate(replace(query, ask=rest), references).quality
        changes = [odds - _log_odds(quality) for odds, quality in zip(before, without, strict=True)]
        found.append(Contribution(word[:40], float(count), tuple(changes)))
    return found


def _strongest(contributions: list[Contribution]) -> list[Contribution]:
    return sorted(contributions, key=lambda each: -each.strength)


def _log_odds(quality: float) -> float:
    bounded = min(max(quality, 1e-6), 1 - 1e-6)
    return math.log(bounded / (1 - bounded))


def _worth(candidate: Candidate, caution: float, is_expert: bool) -> float:
    """Quality as it is compared: the expert's is what the others are compared with, and taken as it is."""
    return candidate.quality - (0.0 if is_expert else caution * candidate.deviation)


def _other_targets(
    candidates: Sequence[Candidate],
    worth: Sequence[float],
    costs: Sequence[float],
    chosen: int,
    rate: float,
    sample: HeldOut,
    caution: float,
) -> tuple[OtherTarget | None, OtherTarget | None]:
    """The nearest targets below and above at which the choice changes.

    Between the rates at which two tiers are worth the same, the choice stays the same: only these are tried.
    """
    pairs = itertools.permutations(range(len(candidates)), 2)
    ties = {
        (worth[dear] - worth[cheap]) / (costs[dear] - costs[cheap])
        for cheap, dear in pairs
        if costs[dear] > costs[cheap]
    }
    rates = sorted({0.0, *(tie for tie in ties if 0.0 < tie < _MOST_RATE)})
    lower = higher = None
    for edge in rates:
        if edge > rate and lower is None:
            lower = _at_rate(candidates, edge * (1 + 1e-9) + 1e-12, chosen, sample, caution)
    for edge in reversed(rates):
        if edge <= rate and higher is None:
            higher = _at_rate(candidates, edge * (1 - 1e-9), chosen, sample, caution)
    # Choosing by quality alone may do better than the expert, but a target is a share of the expert's.
    return lower, None if higher is not None and higher.target > 1 else higher


def _at_rate(
    candidates: Sequence[Candidate], rate: float, chosen: int, sample: HeldOut, caution: float
) -> OtherTarget | None:
    other, _ = take(candidates, rate, caution)
    if other is None or other == chosen:
        return None
    return OtherTarget(candidates[other].tier, sample.at_rate(rate, caution).quality)


def _other_prices(
    candidates: Sequence[Candidate], worth: Sequence[float], costs: Sequence[float], chosen: int, rate: float
) -> list[OtherPrice]:
    """At which share of its price a tier would be taken; not the expert, whose cost is the measure."""
    found = []
    best = worth[chosen] - rate * costs[chosen]
    for index, candidate in enumerate(candidates[:-1]):
        if index == chosen or not candidate.able or rate <= 0 or costs[index] <= 0:
            continue
        share = (worth[index] - best) / rate / costs[index]
        if 0 < share < 1:
            found.append(OtherPrice(candidate.tier, share))
    return found
