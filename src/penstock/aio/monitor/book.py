"""Quality of each tier in each region of queries; where it is surely too low, the tier is skipped.

A verdict is good when the tier's answer was as good as the expert's or better. A region is *promoted* (its
queries go further up) when the upper end of Wilson's interval is under the threshold in some run of the
latest verdicts, and restored when the lower end is at the threshold in some run of those since. Runs of
several lengths are looked at, so that a tier that broke today is not excused by a good year; the bound is
wide (z) because there are that many looks. Regions in which a tier is skipped are probed in the background.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from penstock.aio.judges.verdict import Outcome
from penstock.aio.monitor.bounds import samples_needed, wilson

RUNS: Final = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # verdicts
_HALF_LIFE: Final = 7 * 86_400.0  # seconds after which a verdict counts half in a correction
_PRIOR: Final = 20.0  # verdicts that the predictions themselves are worth


@dataclass(frozen=True, slots=True)
class Change:
    """A region of a tier that is skipped from now on, or no longer."""

    tier: str
    region: str
    promoted: bool
    at: float
    reason: str


@dataclass(slots=True)
class _Cell:
    """The verdicts of one tier in one region, oldest first: when, whether good, what was predicted."""

    verdicts: deque[tuple[float, bool, float | None]]
    promoted_at: float | None = None
    since_change: int = 0  # verdicts since it was promoted or restored
    stale: bool = False  # the shift is made when it is asked for
    shift: float = 0.0  # to add to the log-odds of a prediction

    def runs(self) -> Iterator[tuple[int, int]]:
        """Good verdicts and length of each run that ends with the latest and lies after the last change."""
        good = 0
        for length, (_, was_good, _) in enumerate(islice(reversed(self.verdicts), self.since_change), 1):
            good += was_good
            if length in RUNS:
                yield good, length


class QualityBook:
    """Verdicts in, changes out. Rebuilt from stored verdicts it is the same in every process."""

    def __init__(
        self,
        threshold: float = 0.85,
        *,
        z: float = 3.3,
        z_back: float = 1.96,
        max_age: float = 60 * 86_400.0,
        predictions_since: float = 0.0,
    ) -> None:
        """`predictions_since`: when the predictor in use began; those of others correct nothing."""
        self.threshold = threshold
        self._z = z
        self._z_back = z_back
        self._max_age = max_age
        self._predictions_since = predictions_since
        self._cells: dict[tuple[str, str], _Cell] = {}

    def restore(self, promoted: Iterable[tuple[str, str, float]]) -> None:
        """Tier, region and time of promotions that are in force, before the verdicts since are added."""
        for tier, region, at in promoted:
            cell = self._cell(tier, region)
            cell.promoted_at, cell.since_change = at, 0

    def add(
        self, tier: str, region: str, outcome: Outcome, at: float, predicted: float | None = None
    ) -> Change | None:
        """Count a verdict; a change is returned once, when it happens."""
        if outcome == "unclear":
            return None
        cell = self._cell(tier, region)
        verdicts = cell.verdicts
        verdicts.append((at, outcome != "expert_better", predicted))
        while verdicts[0][0] < at - self._max_age:
            verdicts.popleft()
        # What was judged before a promotion that another process made says nothing against or for it.
        if cell.promoted_at is None or at >= cell.promoted_at:
            cell.since_change += 1
        cell.stale = True
        return self._change(tier, region, cell, at)

    def _change(self, tier: str, region: str, cell: _Cell, at: float) -> Change | None:
        if cell.verdicts[-1][1] == (cell.promoted_at is None):
            return None  # good news promotes nothing, bad news restores nothing
        for good, n in cell.runs():
            if cell.promoted_at is None:
                _, upper = wilson(good, n, self._z)
                if upper < self.threshold:
                    cell.promoted_at, cell.since_change = at, 0
                    said = (
                        f"{good} of the latest {n} answers were good enough: quality is at most {upper:.2f}"
                    )
                    return Change(tier, region, True, at, f"{said}, under {self.threshold:g}.")
            else:
                lower, _ = wilson(good, n, self._z_back)
                if lower >= self.threshold:
                    cell.promoted_at, cell.since_change = None, 0
                    said = (
                        f"{good} of the latest {n} probes were good enough: quality is at least {lower:.2f}"
                    )
                    return Change(tier, region, False, at, f"{said}, not under {self.threshold:g}.")
        return None

    def is_promoted(self, tier: str, region: str) -> bool:
        """Whether the tier is to be skipped for queries of this region."""
        cell = self._cells.get((tier, region))
        return cell is not None and cell.promoted_at is not None

    def promoted(self) -> list[tuple[str, str, float]]:
        """Tier, region and time of what is promoted now, in order."""
        return sorted(
            (tier, region, cell.promoted_at)
            for (tier, region), cell in self._cells.items()
            if cell.promoted_at is not None
        )

    def corrected(self, tier: str, region: str, predicted: float) -> float:
        """A predicted probability, shifted by how predictions for this tier have fared in this region.

        The shift is the same in log-odds for all queries of the region, so their order stays; it is small
        while verdicts are few. A beta prior stands behind it, centred where the predictions were.
        """
        cell = self._cells.get((tier, region))
        if cell is None:
            return predicted
        self._bring_up(cell)
        if cell.shift == 0.0:
            return predicted
        return 1.0 / (1.0 + math.exp(-(_log_odds(predicted) + cell.shift)))

    def use_predictions_since(self, at: float) -> None:
        """Another predictor is in use since then: what its forerunner predicted corrects nothing."""
        self._predictions_since = at
        for cell in self._cells.values():
            cell.stale = True

    def samples_needed(self, quality: float, power: float = 0.95) -> int | None:
        """After how many verdicts a region whose quality has become this low is promoted: with this power."""
        needed = samples_needed(quality, self.threshold, z=self._z, power=power, most=RUNS[-1])
        return None if needed is None else next(n for n in RUNS if n >= needed)

    def _cell(self, tier: str, region: str) -> _Cell:
        return self._cells.setdefault((tier, region), _Cell(deque(maxlen=RUNS[-1])))

    def _bring_up(self, cell: _Cell) -> None:
        """Bring the shift of a cell up to date: older verdicts count less."""
        if not cell.stale or not cell.verdicts:
            return
        cell.stale = False
        latest = cell.verdicts[-1][0]
        known = [
            (0.5 ** max(0.0, (latest - at) / _HALF_LIFE), good, predicted)
            for at, good, predicted in cell.verdicts
            if predicted is not None and at >= self._predictions_since
        ]
        cell.shift = 0.0
        if known:
            n = sum(weight for weight, _, _ in known)
            expected = sum(weight * predicted for weight, _, predicted in known) / n
            good = sum(weight for weight, was_good, _ in known if was_good)
            shrunk = (good + _PRIOR * expected) / (n + _PRIOR)
            cell.shift = _log_odds(shrunk) - _log_odds(expected)


def _log_odds(p: float) -> float:
    p = min(1 - 1e-4, max(1e-4, p))
    return math.log(p / (1 - p))
