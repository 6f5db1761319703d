"""Quality of each tier in each region of queries; where it is surely too low, the tier is skipped.

A verdict is good when the tier's answer was as good as the expert's or better. A region is *promoted* (its
queries go further up) when the upper end of Wilson's interval is under the threshold in some run of the
latest verdicts, and restored when the lower end is at the threshold in some run of those since. Runs of
several lengths are looked at, so that a tier that broke today is not excused by a good year; the bound is
wide (z) because there are that many looks. Regions in which a tier is skipped are probed in the background.

A tenant's verdicts promote a region for that tenant. For all tenants it is promoted when the bound holds
whichever one tenant is left out: nobody can close a tier to others with questions of its own.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from penstock.aio.judges.verdict import Outcome
from penstock.aio.monitor.bounds import samples_needed, wilson

RUNS: Final = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # verdicts
FEWEST: Final = RUNS[0] // 2  # verdicts of a run that must be left without any one tenant's
ANYBODY: Final = "default"  # whose verdicts and queries they are where nobody says
_HALF_LIFE: Final = 7 * 86_400.0  # seconds after which a verdict counts half in a correction
_PRIOR: Final = 20.0  # verdicts that the predictions themselves are worth


@dataclass(frozen=True, slots=True)
class Change:
    """A region of a tier that is skipped from now on, or no longer: by one tenant, or by all (None)."""

    tier: str
    region: str
    promoted: bool
    at: float
    reason: str
    tenant: str | None = None


class Promotion(NamedTuple):
    tier: str
    region: str
    tenant: str | None  # None: of all
    at: float


class _Judged(NamedTuple):
    at: float
    good: bool
    predicted: float | None
    tenant: str


@dataclass(slots=True)
class _Cell:
    """The verdicts of one tier in one region, of one tenant or of all, oldest first."""

    verdicts: deque[_Judged] = field(default_factory=lambda: deque(maxlen=RUNS[-1]))
    promoted_at: float | None = None
    since_change: int = 0  # verdicts since it was promoted or restored
    shifts: dict[str, float] = field(default_factory=dict)  # to add to log-odds, by tenant; made when needed

    def add(self, verdict: _Judged, max_age: float) -> None:
        self.verdicts.append(verdict)
        while self.verdicts[0].at < verdict.at - max_age:
            self.verdicts.popleft()
        # What was judged before a promotion that another process made says nothing against or for it.
        if self.promoted_at is None or verdict.at >= self.promoted_at:
            self.since_change += 1
        self.shifts.clear()

    def since(self) -> Iterator[_Judged]:
        """Verdicts after the last change, the latest first."""
        return islice(reversed(self.verdicts), self.since_change)

    def runs(self) -> Iterator[tuple[int, int, dict[str, list[int]]]]:
        """Good verdicts and length of each run that ends with the latest and lies after the last change, and
        both for each tenant in it."""
        good = 0
        tenants: dict[str, list[int]] = {}
        for length, verdict in enumerate(self.since(), 1):
            good += verdict.good
            counts = tenants.setdefault(verdict.tenant, [0, 0])
            counts[0] += verdict.good
            counts[1] += 1
            if length in RUNS:
                yield good, length, tenants


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
        self._cells: dict[tuple[str, str, str | None], _Cell] = {}  # tier, region, tenant (None: all)

    def restore(self, promoted: Iterable[Promotion]) -> None:
        """Promotions that are in force, before the verdicts since are added."""
        for tier, region, tenant, at in promoted:
            cell = self._cell(tier, region, tenant)
            cell.promoted_at, cell.since_change = at, 0

    def add(
        self,
        tier: str,
        region: str,
        outcome: Outcome,
        at: float,
        predicted: float | None = None,
        *,
        tenant: str = ANYBODY,
    ) -> Change | None:
        """Count a verdict; a change is returned once, when it happens."""
        if outcome == "unclear":
            return None
        verdict = _Judged(at, outcome != "expert_better", predicted, tenant)
        cells = [(whose, self._cell(tier, region, whose)) for whose in (tenant, None)]
        for _, cell in cells:
            cell.add(verdict, self._max_age)
        # What follows for all can wait for the next verdict where something follows for the tenant.
        changes = (self._change(tier, region, whose, cell, at) for whose, cell in cells)
        return next((change for change in changes if change is not None), None)

    def _change(self, tier: str, region: str, tenant: str | None, cell: _Cell, at: float) -> Change | None:
        promote = cell.promoted_at is None
        if cell.verdicts[-1].good == promote:
            return None  # good news promotes nothing, bad news restores nothing
        alone = tenant is not None or (not promote and len({each.tenant for each in cell.since()}) == 1)
        for good, n, tenants in cell.runs():
            parts = [(good, n)] if alone else [(good - g, n - k) for g, k in tenants.values()]
            if min(k for _, k in parts) < FEWEST:
                continue
            if promote:
                bound = max(wilson(*part, self._z)[1] for part in parts)
            else:
                bound = min(wilson(*part, self._z_back)[0] for part in parts)
            if (bound < self.threshold) == promote:
                cell.promoted_at, cell.since_change = at if promote else None, 0
                what, most, under = (
                    ("answers", "most", "under") if promote else ("probes", "least", "not under")
                )
                left = "" if alone else f", whichever of {len(tenants)} tenants is left out"
                said = f"{good} of the latest {n} {what} were good enough: quality is at {most} {bound:.2f}"
                return Change(tier, region, promote, at, f"{said}, {under} {self.threshold:g}{left}.", tenant)
        return None

    def is_promoted(self, tier: str, region: str, tenant: str = ANYBODY) -> bool:
        """Whether the tier is to be skipped for this tenant's queries of this region."""
        cells = (self._cells.get((tier, region, whose)) for whose in (tenant, None))
        return any(cell is not None and cell.promoted_at is not None for cell in cells)

    def promoted(self) -> list[Promotion]:
        """What is promoted now, in order; what is for all first."""
        found = [
            Promotion(*key, cell.promoted_at)
            for key, cell in self._cells.items()
            if cell.promoted_at is not None
        ]
        return sorted(found, key=lambda each: (each.tier, each.region, each.tenant or ""))

    def corrected(self, tier: str, region: str, predicted: float, tenant: str = ANYBODY) -> float:
        """A predicted probability, shifted by how predictions for this tier have fared in this region.

        The shift is the same in log-odds for all queries of the tenant in the region, so their order stays;
        it is small while verdicts are few. A beta prior stands behind it, centred where the predictions were.
        """
        common = self._cells.get((tier, region, None))
        if common is None or not common.verdicts:
            return predicted
        if tenant not in common.shifts:
            own = self._cells.get((tier, region, tenant))
            common.shifts[tenant] = self._shift(common, own, tenant)
        shift = common.shifts[tenant]
        return 1.0 / (1.0 + math.exp(-(_log_odds(predicted) + shift))) if shift else predicted

    def use_predictions_since(self, at: float) -> None:
        """Another predictor is in use since then: what its forerunner predicted corrects nothing."""
        self._predictions_since = at
        for cell in self._cells.values():
            cell.shifts.clear()

    def samples_needed(self, quality: float, power: float = 0.95) -> int | None:
        """After how many verdicts a region whose quality has become this low is promoted: with this power."""
        needed = samples_needed(quality, self.threshold, z=self._z, power=power, most=RUNS[-1])
        return None if needed is None else next(n for n in RUNS if n >= needed)

    def _cell(self, tier: str, region: str, tenant: str | None) -> _Cell:
        return self._cells.setdefault((tier, region, tenant), _Cell())

    def _shift(self, common: _Cell, own: _Cell | None, tenant: str) -> float:
        """By a tenant's own verdicts and those of others, as far as no single one of these is needed."""
        latest = common.verdicts[-1].at
        mine = _Weighed() if own is None else self._weighed(own.verdicts, latest)
        others: dict[str, list[_Judged]] = {}
        for verdict in common.verdicts:
            if verdict.tenant != tenant:
                others.setdefault(verdict.tenant, []).append(verdict)
        weighed = [self._weighed(verdicts, latest) for verdicts in others.values()]
        total = sum(weighed, mine)
        shifts = [(total - other).shift() for other in weighed] or [mine.shift()]
        return max(0.0, min(shifts)) + min(0.0, max(shifts))

    def _weighed(self, verdicts: Iterable[_Judged], latest: float) -> _Weighed:
        """Older verdicts count less."""
        found = _Weighed()
        for at, good, predicted, _ in verdicts:
            if predicted is not None and at >= self._predictions_since:
                weight = 0.5 ** max(0.0, (latest - at) / _HALF_LIFE)
                found += _Weighed(weight, weight * predicted, weight * good)
        return found


@dataclass(frozen=True, slots=True)
class _Weighed:
    """Sums over verdicts: their weights, and what was expected and found of them."""

    n: float = 0.0
    expected: float = 0.0
    good: float = 0.0

    def __add__(self, other: _Weighed) -> _Weighed:
        return _Weighed(self.n + other.n, self.expected + other.expected, self.good + other.good)

    def __sub__(self, other: _Weighed) -> _Weighed:
        return _Weighed(self.n - other.n, self.expected - other.expected, self.good - other.good)

    def shift(self) -> float:
        """In log-odds."""
        if self.n < 1e-9:
            return 0.0
        expected = self.expected / self.n
        shrunk = (self.good + _PRIOR * expected) / (self.n + _PRIOR)
        return _log_odds(shrunk) - _log_odds(expected)


def _log_odds(p: float) -> float:
    p = min(1 - 1e-4, max(1e-4, p))
    return math.log(p / (1 - p))
