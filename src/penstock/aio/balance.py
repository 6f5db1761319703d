"""What the books come to: savings, net of what routing itself cost, against two ways of not routing.

*Always-expert* gives every request to the top of the ladder. The *mixture* gives requests to tiers by lot,
in the shares that reach the router's predicted quality for the least money: what a router saves beyond it, it
saves by looking at requests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from penstock.aio.books import Account, RouteTally
from penstock.aio.monitor.bounds import wilson

Z = 1.96  # intervals hold 95 of 100 times


@dataclass(frozen=True, slots=True)
class Balance:
    """Sums, so that balances of tenants and days add up. Money in picodollars, quality in millionths."""

    requests: int = 0  # routed and answered
    unanswered: int = 0
    pinned: int = 0
    pinned_cost: int = 0
    spent: int = 0  # on answers that were delivered
    classifier: int = 0
    cascade: int = 0
    monitor: int = 0
    always_expert: int = 0
    mixture: int = 0
    quality: int = 0
    deviation: int = 0
    expert_quality: int = 0

    @property
    def routing(self) -> int:
        """What routing itself cost."""
        return self.classifier + self.cascade + self.monitor

    @property
    def gross(self) -> int:
        return self.always_expert - self.spent

    @property
    def net(self) -> int:
        return self.gross - self.routing

    @property
    def net_of_mixture(self) -> int:
        """Saved against the mixture; negative where tossing coins would have been cheaper."""
        return self.mixture - self.spent - self.routing

    def __add__(self, other: Balance) -> Balance:
        return Balance(*(a + b for a, b in zip(_values(self), _values(other), strict=True)))


def _values(balance: Balance) -> tuple[int, ...]:
    return dataclasses.astuple(balance)


@dataclass(frozen=True, slots=True)
class Measured:
    """Share of answers as good as the expert's, with the bounds of its interval; from how many verdicts."""

    share: float
    low: float
    high: float
    verdicts: int


def balance(tiers: Mapping[str, RouteTally]) -> Balance:
    """Of one tenant's day (or of whatever was added up): tallies by tier."""
    total = RouteTally()
    for tally in tiers.values():
        total.add(tally)
    return Balance(
        requests=total.requests,
        unanswered=total.unanswered,
        pinned=total.pinned,
        pinned_cost=total.pinned_cost,
        spent=total.cost,
        classifier=total.classifier_cost,
        cascade=total.cascade_cost,
        monitor=total.monitor_cost,
        always_expert=total.expert_cost,
        mixture=_mixture(tiers.values(), total.requests, total.quality),
        quality=total.quality,
        deviation=total.deviation,
        expert_quality=total.expert_quality,
    )


def balances(tallies: Mapping[Account, RouteTally]) -> dict[tuple[str, str], Balance]:
    """One for each tenant and day. A day's mixture is its own: sums of balances stay what their parts say."""
    days: dict[tuple[str, str], dict[str, RouteTally]] = {}
    for (tenant, day, tier), tally in tallies.items():
        days.setdefault((tenant, day), {})[tier] = tally
    return {key: balance(tiers) for key, tiers in sorted(days.items())}


def mixture_cost(points: Sequence[tuple[Fraction, Fraction]], quality: Fraction) -> Fraction:
    """The least mean cost of a lottery over (quality, cost) whose mean quality is at least `quality`.

    A linear programme with two constraints has a best solution that mixes at most two points. Where not even
    the best point reaches the quality, its cost: a baseline that is too cheap, never one too dear.
    """
    enough = [cost for reached, cost in points if reached >= quality]
    costs = enough or [min(cost for reached, cost in points if reached == max(q for q, _ in points))]
    for low, low_cost in points:
        for high, high_cost in points:
            if low < quality < high:
                costs.append(low_cost + (high_cost - low_cost) * (quality - low) / (high - low))
    return min(costs)


def _mixture(tallies: Iterable[RouteTally], requests: int, quality: int) -> int:
    # A tier that was on the ladder for part of the day stands for all of it by its mean.
    points = [
        (Fraction(tally.would_quality, tally.weighed), Fraction(tally.would_cost, tally.weighed))
        for tally in tallies
        if tally.weighed
    ]
    if not points or not requests:
        return 0
    return round(mixture_cost(points, Fraction(quality, requests)) * requests)


def measured(tiers: Iterable[RouteTally]) -> Measured | None:
    """Quality by the monitor's verdicts, each tier weighted by what it answered; None without a verdict.

    The expert is as good as itself. A tier without verdicts may be anything from 0 to 1, which the interval
    says. Bounds of tiers (Wilson's) are joined as those of independent estimates: distances add in squares.
    """
    share = below = above = 0.0
    verdicts = requests = 0
    for tally in tiers:
        checked = tally.as_good + tally.worse
        unsure = tally.requests - tally.by_expert
        verdicts += checked
        requests += tally.requests
        share += tally.by_expert
        if not unsure:
            continue
        low, high = wilson(tally.as_good, checked, Z)
        own = tally.as_good / checked if checked else 0.5
        share += unsure * own
        below += (unsure * (own - low)) ** 2
        above += (unsure * (high - own)) ** 2
    if not verdicts or not requests:
        return None
    share /= requests
    return Measured(
        share, max(share - below**0.5 / requests, 0.0), min(share + above**0.5 / requests, 1.0), verdicts
    )
