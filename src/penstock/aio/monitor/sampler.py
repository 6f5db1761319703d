"""Which answers are checked: a share of them, as far as the day's money and the backlog reach."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from penstock.errors import ConfigError

DAY: Final = 86_400  # seconds
_AT_ONCE: Final = 0.25  # of a day's money; the rest comes evenly over the day, so that no hour goes unseen


@dataclass(frozen=True, slots=True)
class Sample:
    """An answer that is to be checked. Hand it back to `settle` exactly once."""

    tier: str
    day: int  # since 1970, UTC
    reserved: int  # picodollars
    probe: bool  # the tier was skipped, and is asked in the background to see whether it has recovered


class Sampler:
    """For one process: with several, each has its part of the money. Money is in whole picodollars."""

    def __init__(
        self, share: float, daily_budget: int, tiers: Collection[str], *, backlog: int = 64, spent: int = 0
    ) -> None:
        """`spent` is what checks have cost today already, before this process began."""
        self.configure(share, daily_budget, tiers, backlog=backlog)
        self.waiting = 0  # taken and not yet settled
        self.over_budget = 0  # drawn, and left out for want of money
        self.over_backlog = 0
        self._day: int | None = None
        self._spent = spent  # settled and reserved

    def configure(
        self, share: float, daily_budget: int, tiers: Collection[str], *, backlog: int = 64
    ) -> None:
        """Go on by these rules; what is spent and reserved stays so."""
        if not 0.0 <= share <= 1.0:
            raise ConfigError(f"A share of {share} of the answers cannot be checked; give one from 0 to 1.")
        if daily_budget < 0 or backlog < 1:
            raise ConfigError(
                f"Checks cannot run with a budget of {daily_budget} and a backlog of {backlog}; "
                "give a budget of 0 or more and a backlog of 1 or more."
            )
        self.share = share
        self.daily_budget = daily_budget
        self.tiers = frozenset(tiers)
        self.backlog = backlog

    def draws(self, tier: str, draw: float, factor: float = 1.0) -> bool:
        """Whether `take` could take this one, before anybody reckons what it may cost."""
        return tier in self.tiers and draw < self.share * factor

    def take(
        self, tier: str, *, draw: float, cost: int, now: float, probe: bool = False, factor: float = 1.0
    ) -> Sample | None:
        """Whether to check this answer, which would cost `cost` at most: reserved until it is settled.

        `draw` is uniform in [0, 1). `factor` multiplies the share, for what is to be seen sooner, such as a
        model on trial.
        """
        if not self.draws(tier, draw, factor):
            return None
        if self.waiting >= self.backlog:
            self.over_backlog += 1
            return None
        day = self._turn(now)
        # A NaN or negative price must not open the purse.
        if not cost >= 0 or self._spent + cost > self._allowance(now):
            self.over_budget += 1
            return None
        self._spent += cost
        self.waiting += 1
        return Sample(tier, day, cost, probe)

    def extend(self, sample: Sample, cost: int, now: float) -> Sample | None:
        """The sample with so much more reserved for it, in its place; None: there is no money for that."""
        if sample.day != self._turn(now) or not 0 <= cost <= self._allowance(now) - self._spent:
            return None
        self._spent += cost
        return replace(sample, reserved=sample.reserved + cost)

    def settle(self, sample: Sample, cost: int) -> None:
        """What the check has really cost; 0 if it was given up."""
        self.waiting -= 1
        if sample.day == self._day:
            self._spent += max(0, cost) - sample.reserved

    def spent(self, now: float) -> int:
        """Today, with what is reserved."""
        self._turn(now)
        return self._spent

    def _turn(self, now: float) -> int:
        day = int(now // DAY)
        if self._day is None:
            self._day = day
        elif day != self._day:
            self._day, self._spent = day, 0
        return day

    def _allowance(self, now: float) -> float:
        passed = (now % DAY) / DAY
        return self.daily_budget * min(1.0, _AT_ONCE + (1 - _AT_ONCE) * passed)
