"""What routing saves against always asking the expert, and the quality it reaches.

Costs are shares of the expert's. The rate at which quality is bought is solved on rows that were not judged
(`penstock.aio.choose.solve`) and then applied; `at_target` reads off where the curve of all rates crosses the
target, which nobody can do in advance and which is printed beside it for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.aio.choose import choices, reached, shares, solve
from penstock.aio.evaluate.dataset import Dataset

Floats = NDArray[np.float64]

VERIFIED = (
    0.05  # of the answers of the lower half of tiers: asked again of the expert, by the quality monitor
)
# What a second of the classifier costs, as a share of an expert's answer: a core costs about 0.05 dollars an
# hour, an expert's answer about 0.002 dollars.
CLASSIFIER_PER_SECOND = 0.05 / 3600 / 0.002
_RATES = np.concatenate(([0.0], np.geomspace(1e-3, 1e2, 180)))


@dataclass(frozen=True, slots=True)
class Saving:
    """All shares: quality of the expert's, the rest of the cost of always asking the expert."""

    quality: float
    gross: float
    net: float  # less verified answers, less the classifier
    tiers: tuple[float, ...]  # share of queries that each tier got


def _saving(quality: float, cost: float, tiers: Floats, classifier: float) -> Saving:
    lower = len(tiers) // 2
    monitor = VERIFIED * float(tiers[:lower].sum())
    gross = 1.0 - cost
    return Saving(
        quality,
        gross,
        gross - monitor - classifier * CLASSIFIER_PER_SECOND,
        tuple(float(tier) for tier in tiers),
    )


def routed(
    known: Floats, known_ok: Floats, predicted: Floats, judged: Dataset, target: float, classifier: float
) -> Saving:
    """With the rate from `known` (predictions of rows beside the judged ones, and their outcomes)."""
    costs = np.array(shares([float(cost) for cost in judged.cost]))
    rate = solve(known, known_ok, costs, target).rate
    return applied(predicted, judged.ok, costs, rate, classifier)


def applied(predicted: Floats, ok: Floats, costs: Floats, rate: float, classifier: float) -> Saving:
    taken = choices(predicted, costs, rate)
    quality, cost = reached(taken, ok, costs)
    tiers = np.bincount(taken, minlength=len(costs)) / len(taken)
    return _saving(quality / float(ok[:, -1].mean()), cost, tiers, classifier)


def at_target(predicted: Floats, judged: Dataset, target: float, classifier: float) -> Saving:
    """Where the curve crosses the target, coming from the expert's side; lines between its points."""
    costs = np.array(shares([float(cost) for cost in judged.cost]))
    only_expert = np.eye(len(costs))[-1]
    before = _saving(1.0, 1.0, only_expert, classifier)
    for rate in _RATES:
        after = applied(predicted, judged.ok, costs, float(rate), classifier)
        if after.quality < target <= before.quality:
            part = (before.quality - target) / (before.quality - after.quality)
            tiers = np.array(before.tiers) + part * (np.array(after.tiers) - np.array(before.tiers))
            return _saving(
                target, 1.0 - before.gross - part * (after.gross - before.gross), tiers, classifier
            )
        before = after
    return before


def mixture(known_ok: Floats, judged: Dataset, target: float) -> Saving:
    """No router: two tiers drawn at random, with the shares that were cheapest for the target on `known_ok`.

    There is no classifier, but the monitor looks at the same share of answers.
    """
    costs = np.array(shares([float(cost) for cost in judged.cost]))
    tiers = _cheapest_mix(known_ok.mean(axis=0), costs, target)
    means = judged.ok.mean(axis=0)
    return _saving(float(tiers @ means / means[-1]), float(tiers @ costs), tiers, 0.0)


def _cheapest_mix(means: Floats, costs: Floats, target: float) -> Floats:
    """Shares of the tiers; an optimal mixture has at most two of them."""
    wanted = target * means[-1]
    best: Floats = np.eye(len(costs))[-1]
    least = float(costs[-1])
    for low in range(len(costs)):
        for high in range(len(costs)):
            if means[high] < wanted:
                continue
            part = 0.0 if means[low] >= wanted else (wanted - means[low]) / (means[high] - means[low])
            mix = np.zeros(len(costs))
            mix[low] += 1.0 - part
            mix[high] += part
            if mix @ costs < least:
                best, least = mix, float(mix @ costs)
    return best
