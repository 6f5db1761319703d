"""Which tier: the one whose quality, less what it costs at the going rate, is best.

The rate says how much quality must be gained by spending what the expert costs. It is what a target ("95% of
the expert's quality") becomes on held-out data: the highest rate, and so the lowest bill, at which choices
still reach the target. Costs are shares of the expert's cost of the same request, so a rate holds for short
requests and long ones. Ladders are cheapest first; the last step is the expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]

ALWAYS_EXPERT: Final = -1e9  # a rate at which nothing else is ever chosen
# Rates that are tried for a target; below the least one, cost hardly matters.
_RATES: Final = np.concatenate(([0.0], np.geomspace(1e-4, 1e2, 480)))


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a target has become. Quality and cost are shares of always asking the expert, on held-out data."""

    target: float
    rate: float
    quality: float
    cost: float


def choices(
    quality: Floats,
    costs: Floats,
    rate: float,
    *,
    deviation: Floats | None = None,
    caution: float = 0.0,
    open_: NDArray[np.bool_] | None = None,
) -> NDArray[np.intp]:
    """For each row the step to take; of equals the cheapest.

    `quality` [n, steps] and `deviation` are as predicted, `costs` [steps] or [n, steps] shares of the expert.
    `caution` standard deviations are taken off the quality of every step but the expert's. Steps that are not
    `open_` are not taken; a row needs one that is.
    """
    value = np.asarray(quality, dtype=np.float64) - rate * np.asarray(costs, dtype=np.float64)
    if deviation is not None and caution:
        value[:, :-1] -= caution * np.asarray(deviation)[:, :-1]
    if open_ is not None:
        value = np.where(open_, value, -np.inf)
    taken: NDArray[np.intp] = value.argmax(axis=1)
    return taken


def choose(
    quality: Sequence[float],
    deviation: Sequence[float],
    costs: Sequence[float],
    rate: float,
    *,
    caution: float = 0.0,
    open_: Sequence[bool] | None = None,
) -> int:
    """The step for one query, by the same rule."""
    row = choices(
        np.array([quality]),
        np.array([costs]),
        rate,
        deviation=np.array([deviation]),
        caution=caution,
        open_=None if open_ is None else np.array([open_]),
    )
    return int(row[0])


def reached(taken: NDArray[np.intp], ok: Floats, costs: Floats) -> tuple[float, float]:
    """Mean quality and mean cost of what was chosen: as outcomes were, not as they were predicted."""
    rows = np.arange(len(taken))
    spent = np.broadcast_to(np.asarray(costs, dtype=np.float64), ok.shape)
    return float(np.nanmean(ok[rows, taken])), float(spent[rows, taken].mean())


def solve(
    quality: Floats,
    ok: Floats,
    costs: Floats,
    target: float,
    *,
    deviation: Floats | None = None,
    caution: float = 0.0,
) -> Threshold:
    """The highest rate at which choices by `quality` reach `target` of the expert's outcomes in `ok`.

    Where even choosing by quality alone does not reach it, only the expert is left.
    """
    expert = float(np.nanmean(ok[:, -1]))
    # Where the expert is free there is nothing to save, and no cost to compare with.
    full = float(np.broadcast_to(np.asarray(costs, dtype=np.float64), ok.shape)[:, -1].mean()) or 1.0
    best = Threshold(target, ALWAYS_EXPERT, 1.0, 1.0)
    for rate in _RATES:
        taken = choices(quality, costs, float(rate), deviation=deviation, caution=caution)
        got, spent = reached(taken, ok, costs)
        # Noise may lift quality at a rate beyond one where it fell short: the cheapest one counts.
        if got >= target * expert and spent / full <= best.cost:
            best = Threshold(target, float(rate), got / expert, spent / full)
    return best


def shares(costs: Sequence[float]) -> list[float]:
    """Costs as shares of the expert's. Where that is free everything is, and nothing is saved by choosing."""
    expert = costs[-1]
    return [cost / expert if expert else 0.0 for cost in costs]


class Ladder:
    """The steps that are chosen from, with the rate for each target that is asked for.

    `quality`, `deviation` and `ok` are of held-out queries, a column for each step; `costs` are what a usual
    request costs on each step, in any unit.
    """

    def __init__(
        self,
        quality: Floats,
        ok: Floats,
        costs: Sequence[float],
        *,
        deviation: Floats | None = None,
        caution: float = 0.0,
    ) -> None:
        self.caution = caution
        self._quality, self._ok, self._deviation = quality, ok, deviation
        self._costs = np.array(shares(costs))
        self._solved: dict[int, Threshold] = {}

    def solved(self, target: float) -> bool:
        """Whether its threshold is known; otherwise it takes some tens of milliseconds."""
        return round(target * 1000) in self._solved

    def threshold(self, target: float) -> Threshold:
        """Kept to a tenth of a percent: whoever sets a target cannot mean more, and may send many."""
        key = round(target * 1000)
        if key not in self._solved:
            self._solved[key] = solve(
                self._quality,
                self._ok,
                self._costs,
                key / 1000,
                deviation=self._deviation,
                caution=self.caution,
            )
        return self._solved[key]

    def best(self, steps: Sequence[int]) -> float:
        """The share of the expert's quality that is reached if only these steps may be taken."""
        open_ = np.zeros(self._quality.shape, dtype=bool)
        open_[:, list(steps)] = True
        taken = choices(
            self._quality, self._costs, 0.0, deviation=self._deviation, caution=self.caution, open_=open_
        )
        got, _ = reached(taken, self._ok, self._costs)
        return got / float(np.nanmean(self._ok[:, -1]))
