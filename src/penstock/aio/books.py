"""Honest books: what routing cost, and what the same requests would have cost without it.

Every field of a tally is a sum, in whole numbers, so that workers, days and tenants add up exactly; money is
in picodollars (1e-12 US dollars), quality in millionths. What the router did not choose (a tier that was
pinned) is counted, but saves nothing here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.aio.decision import COST_CAP, PROMOTED, Candidate, Decision

MILLION: Final = 1_000_000
_HOUR: Final = 3_600 * 10**9  # nanoseconds

Account = tuple[str, str, str]  # tenant, day (UTC), tier


@dataclass(slots=True)
class RouteTally:
    """Sums of a tenant's day at one tier."""

    # Of requests that the router gave a tier, and that this one answered:
    requests: int = 0
    by_expert: int = 0  # of these, where this tier was the top of the ladder
    output_tokens: int = 0
    cost: int = 0
    expert_cost: int = 0  # had the expert answered them
    quality: int = 0  # predicted
    deviation: int = 0  # of that prediction
    expert_quality: int = 0  # predicted, had the expert answered them
    # Of all requests that were routed and answered, with this tier on their ladder:
    weighed: int = 0
    would_cost: int = 0  # had this tier, or the next one that was able, answered them
    would_quality: int = 0
    # Of requests for which the router chose this tier:
    chosen: int = 0
    promoted: int = 0  # chosen because the monitor has closed a lower one to their region
    capped: int = 0  # chosen because a cost cap ruled out a dearer one
    unanswered: int = 0
    classifier_nanoseconds: int = 0
    classifier_cost: int = 0
    # Others:
    passed_over: int = 0
    discarded: int = 0  # answers of this tier that the second look rejected
    cascade_cost: int = 0  # of these
    pinned: int = 0  # answered by somebody else's choice; in no sum above
    pinned_cost: int = 0
    # Of this tier's answers that the monitor has checked against the expert's:
    as_good: int = 0
    worse: int = 0
    better: int = 0  # part of `as_good`: the expert's was the worse one
    unclear: int = 0  # neither as good nor worse
    monitor_cost: int = 0
    paired_tokens: int = 0
    paired_expert_tokens: int = 0

    def add(self, other: RouteTally) -> None:
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


FIELDS: Final = tuple(field.name for field in dataclasses.fields(RouteTally))
MONEY: Final = tuple(name for name in FIELDS if name.endswith("cost"))

Tallies = dict[Account, RouteTally]


def book(decision: Decision, day: str, cpu_hour: int) -> Tallies:
    """What one finished request adds. `cpu_hour`: picodollars that an hour of a CPU costs."""
    tallies: Tallies = {}

    def at(tier: str) -> RouteTally:
        return tallies.setdefault((decision.tenant, day, tier), RouteTally())

    for passed in decision.passed_over:
        at(passed.tier).passed_over += 1
    for attempt in decision.cascade:
        at(attempt.tier).discarded += not attempt.sample
        at(attempt.tier).cascade_cost += attempt.cost
    chosen = at(decision.chosen)
    nanoseconds = round(decision.classifier_seconds * 1e9)
    chosen.classifier_nanoseconds += nanoseconds
    chosen.classifier_cost += (nanoseconds * cpu_hour + _HOUR // 2) // _HOUR
    if decision.pinned:
        if decision.answered:
            at(decision.answered).pinned += 1
            at(decision.answered).pinned_cost += decision.cost
        return tallies
    chosen.chosen += 1
    chosen.promoted += decision.forced == PROMOTED
    chosen.capped += decision.forced == COST_CAP
    answered = decision.candidate(decision.answered)
    if answered is None:
        chosen.unanswered += 1
        return tallies
    for index, candidate in enumerate(decision.candidates):
        stand_in = _able_from(decision.candidates, index, answered)
        tally = at(candidate.tier)
        tally.weighed += 1
        tally.would_cost += cost_at(decision, stand_in, answered)
        tally.would_quality += _millionths(stand_in.quality)
    expert = _able_from(decision.candidates, len(decision.candidates) - 1, answered)
    tally = at(answered.tier)
    tally.requests += 1
    tally.by_expert += answered.tier == expert.tier
    tally.output_tokens += decision.output_tokens
    tally.cost += decision.cost
    tally.expert_cost += cost_at(decision, expert, answered)
    tally.quality += _millionths(answered.quality)
    tally.deviation += _millionths(answered.deviation)
    tally.expert_quality += _millionths(expert.quality)
    return tallies


def book_verdict(
    tenant: str,
    day: str,
    tier: str,
    outcome: str,
    cost: int,
    tokens: int = 0,
    expert_tokens: int = 0,
    *,
    probe: bool = False,
) -> Tallies:
    """What one check by the monitor adds: it is the tenant's whose answer was checked.

    `outcome` is a verdict's; `cost` all that was spent to reach it; the tokens are those of both answers. A
    `probe` asks a tier that is skipped: nobody was given its answer, so that it says nothing of quality here.
    """
    tally = RouteTally(monitor_cost=cost)
    if tokens and expert_tokens:
        tally.paired_tokens, tally.paired_expert_tokens = tokens, expert_tokens
    if probe:
        return {(tenant, day, tier): tally}
    tally.as_good = int(outcome in ("same", "low_better"))
    tally.better = int(outcome == "low_better")
    tally.worse = int(outcome == "expert_better")
    tally.unclear = int(outcome == "unclear")
    return {(tenant, day, tier): tally}


def cost_at(decision: Decision, tier: Candidate, answered: Candidate) -> int:
    """What the request would have cost at another tier: the same prompt, and as much of it cached.

    Its answer is as much longer or shorter than the one that was given as was expected, within what the
    request allows.
    """
    if tier.tier == answered.tier:
        return decision.cost
    tokens = decision.output_tokens
    if tier.output_tokens and answered.output_tokens:
        tokens = (tokens * tier.output_tokens + answered.output_tokens // 2) // answered.output_tokens
    if decision.most_output_tokens:
        tokens = min(tokens, max(decision.most_output_tokens, decision.output_tokens))
    return tier.price.cost(decision.prompt_tokens, decision.cached_tokens, tokens)


def merge(into: Tallies, more: Mapping[Account, RouteTally]) -> None:
    for account, tally in more.items():
        known = into.get(account)
        if known is None:
            into[account] = dataclasses.replace(tally)
        else:
            known.add(tally)


def _able_from(candidates: list[Candidate], index: int, otherwise: Candidate) -> Candidate:
    """The candidate, or who would stand in: the next one up that may answer, else the next one down."""
    upwards: Iterable[Candidate] = (*candidates[index:], *reversed(candidates[:index]))
    return next((candidate for candidate in upwards if candidate.able and not candidate.barred), otherwise)


def _millionths(quality: float) -> int:
    return round(min(max(quality, 0.0), 1.0) * MILLION)
