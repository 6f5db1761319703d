"""What tenants and classes get from one queue and a few slots over simulated minutes.

Each bar is also shown to be missed where its rule is off: by one tenant for all, or without ageing.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import pytest

from penstock.gateway.queue import FairQueue, QueueLimits, QueueRefusal, ServiceClass, Ticket

SLOTS = 8
SPEED = 100.0  # tokens a second of each slot


@dataclass(frozen=True)
class Source:
    """A stream of requests of one tenant: exponential gaps, and sizes around a mean."""

    tenant: str
    rate: float  # requests a second
    service_class: ServiceClass = "standard"
    weight: float = 1.0
    tokens: int = 100  # that a request really takes, on average
    overestimate: float = 1.0
    since: float = 0.0
    until: float = 1e9
    patience: float | None = None
    known_as: str | None = None  # the tenant that the queue is told


@dataclass
class Outcome:
    served: Counter[str] = field(default_factory=Counter)  # tokens, by tenant
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    turned_away: Counter[str] = field(default_factory=Counter)
    expired: Counter[str] = field(default_factory=Counter)  # of these, those that waited in vain
    offered: Counter[str] = field(default_factory=Counter)

    def p99(self, tenant: str) -> float:
        waits = sorted(self.waits[tenant])
        return waits[int(0.99 * (len(waits) - 1))]


def simulate(
    sources: Iterable[Source],
    *,
    seconds: float,
    limits: QueueLimits | None = None,
    seed: int = 1,
    counted_from: float = 0.0,
    room: Callable[[int, ServiceClass, str], bool] = lambda free, *_: free > 0,
) -> Outcome:
    """Run the sources against one queue and SLOTS slots; `room` says which class may use the free ones."""
    rng, ids, outcome = random.Random(seed), count(), Outcome()
    queue = FairQueue(limits or QueueLimits(max_requests=200, max_tokens=10**9))
    owner: dict[int, tuple[Source, int]] = {}
    events: list[tuple[float, int, Source | Ticket]] = []
    for source in sources:
        heapq.heappush(events, (source.since + rng.expovariate(source.rate), next(ids), source))
    free = SLOTS
    while events and events[0][0] < seconds:
        now, _, event = heapq.heappop(events)
        if isinstance(event, Source):
            if now > event.until:
                continue
            tokens = rng.randint(event.tokens // 2, event.tokens * 3 // 2)
            ticket = Ticket(
                next(ids),
                event.known_as or event.tenant,
                event.service_class,
                event.weight,
                int(tokens * event.overestimate),
                now,
                now + event.patience if event.patience else None,
            )
            owner[ticket.id] = event, tokens
            outcome.offered[event.tenant] += 1
            try:
                for each in queue.offer(ticket, now):
                    outcome.turned_away[owner[each.id][0].tenant] += 1
            except QueueRefusal:
                outcome.turned_away[event.tenant] += 1
            heapq.heappush(events, (now + rng.expovariate(event.rate), next(ids), event))
        else:
            free += 1
            source, tokens = owner[event.id]
            queue.served(event, tokens, now)
            if now >= counted_from:
                outcome.served[source.tenant] += tokens
        for each in queue.expire(now):
            outcome.turned_away[owner[each.id][0].tenant] += 1
            outcome.expired[owner[each.id][0].tenant] += 1
        while (taken := queue.take(now, partial(room, free))) is not None:
            free -= 1
            source, tokens = owner[taken.id]
            if now >= counted_from:
                outcome.waits[source.tenant].append(now - taken.arrived)
            heapq.heappush(events, (now + tokens / SPEED, next(ids), taken))
    return outcome


def shares(outcome: Outcome) -> dict[str, float]:
    total = sum(outcome.served.values())
    return {tenant: tokens / total for tenant, tokens in outcome.served.items()}


# The slots serve 8 requests of 100 tokens a second.


def test_under_saturation_tokens_are_shared_by_weight() -> None:
    sources = [Source(name, rate=20, weight=weight) for name, weight in [("a", 1.0), ("b", 2.0), ("c", 5.0)]]
    got = shares(simulate(sources, seconds=200))
    assert got == {"a": pytest.approx(1 / 8, rel=0.05), "b": pytest.approx(2 / 8, rel=0.05), "c": got["c"]}


def test_large_and_small_requests_get_the_same_tokens() -> None:
    sources = [Source("large", rate=5, tokens=800), Source("small", rate=50, tokens=50)]
    assert shares(simulate(sources, seconds=300))["large"] == pytest.approx(0.5, rel=0.05)


def test_estimates_far_too_high_cost_a_tenant_little() -> None:
    sources = [Source("wild", rate=20, overestimate=40.0), Source("exact", rate=20)]
    assert shares(simulate(sources, seconds=300))["wild"] == pytest.approx(0.5, rel=0.08)


def test_a_tenant_that_was_idle_gets_its_share_and_nothing_for_the_past() -> None:
    sources = [Source("a", rate=20), Source("b", rate=20, since=150)]
    assert shares(simulate(sources, seconds=250, counted_from=150))["b"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("max_requests", [50, 1000])
def test_a_flood_at_ten_times_capacity_leaves_another_tenants_wait_alone(max_requests: int) -> None:
    """All slots are taken, so it waits for the next one that comes free: a part of one request's time."""
    limits = QueueLimits(max_requests=max_requests, max_tokens=10**9)
    quiet, flood = Source("quiet", rate=1.0), Source("flood", rate=80.0)
    outcome = simulate([quiet, flood], seconds=200, limits=limits)
    assert outcome.turned_away["quiet"] == 0
    assert outcome.p99("quiet") <= 1.0, "longer than one request takes"
    assert outcome.turned_away["flood"] > 0.8 * outcome.offered["flood"]


def test_without_telling_tenants_apart_the_flood_drowns_the_other() -> None:
    sources = [Source("quiet", rate=1.0, known_as="all"), Source("flood", rate=80.0, known_as="all")]
    outcome = simulate(sources, seconds=200)
    assert outcome.turned_away["quiet"] > 0
    assert outcome.p99("quiet") > 10.0


OVERLOAD = [
    Source("chat", rate=4.0, service_class="interactive", patience=30),
    Source("app", rate=12.0, patience=30),
    Source("night", rate=24.0, service_class="batch", patience=300),
]


def test_at_five_times_capacity_the_best_class_hardly_waits_and_nothing_of_it_is_shed() -> None:
    outcome = simulate(OVERLOAD, seconds=300)
    assert outcome.turned_away["chat"] == 0
    assert outcome.p99("chat") <= 1.0
    assert sum(outcome.served.values()) >= 0.95 * SLOTS * SPEED * 300


def test_in_pure_order_of_age_a_backlog_would_hold_up_the_best_class() -> None:
    limits = QueueLimits(max_requests=200, max_tokens=10**9, ageing_seconds=1.0, aged_share=1.0)
    assert simulate(OVERLOAD, seconds=300, limits=limits).p99("chat") > 1.0


STARVING = [
    Source("chat", rate=40.0, service_class="interactive", patience=5.0),
    Source("night", rate=4.0, service_class="batch"),
]


def test_while_a_better_class_alone_could_fill_all_slots_a_lower_one_still_gets_its_share() -> None:
    # The bound would push batch work out for interactive work: here there is room for all.
    limits = QueueLimits(max_requests=100_000, max_tokens=10**9, ageing_seconds=1.0)
    got = shares(simulate(STARVING, seconds=200, limits=limits, counted_from=50))
    assert got["night"] == pytest.approx(limits.aged_share, rel=0.15)


def test_without_ageing_it_would_starve() -> None:
    limits = QueueLimits(max_requests=100_000, max_tokens=10**9, ageing_seconds=1e6)
    assert "night" not in shares(simulate(STARVING, seconds=200, limits=limits, counted_from=50))


def test_slots_kept_for_the_best_class_spare_it_any_wait() -> None:
    def room(free: int, name: ServiceClass, tenant: str) -> bool:
        return free > (0 if name == "interactive" else 2)

    sources = [Source("chat", rate=1.0, service_class="interactive"), Source("night", 40.0, "batch")]
    outcome = simulate(sources, seconds=200, room=room)
    assert outcome.waits["chat"].count(0.0) >= 0.9 * len(outcome.waits["chat"])
    assert shares(outcome)["night"] > 0.6


def test_those_who_cannot_be_served_in_time_are_told_at_once_and_few_wait_in_vain() -> None:
    outcome = simulate([Source("a", rate=40.0, patience=5.0)], seconds=200)
    assert outcome.turned_away["a"] > 0.7 * outcome.offered["a"]
    assert outcome.expired["a"] < 0.05 * outcome.turned_away["a"]
    assert sum(outcome.served.values()) >= 0.95 * SLOTS * SPEED * 200
