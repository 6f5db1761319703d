"""Seeded simulations of the real queue, with its invariants checked after every event.

A failure prints its seed; the same seed replays it. Small queues reach odd corners soonest.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from penstock.gateway.queue import LEVELS, FairQueue, QueueLimits, QueueRefusal, ServiceClass, Ticket

WORLDS = 60
EVENTS_PER_WORLD = 1_000
CLASSES: tuple[ServiceClass, ...] = tuple(LEVELS)


class World:
    """One queue, tenants that come and hang up, and a dispatcher that has room at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.limits = QueueLimits(
            max_requests=self.rng.choice([1, 3, 10, 60]),
            max_tokens=self.rng.choice([50, 2_000, 20_000]),
            ageing_seconds=self.rng.choice([0.1, 1.0, 10.0]),
            aged_share=self.rng.choice([0.05, 0.25, 1.0]),
        )
        self.queue = FairQueue(self.limits)
        self.tenants = {
            f"tenant {i}": self.rng.choice([0.5, 1.0, 4.0]) for i in range(self.rng.randint(1, 6))
        }
        self.eagerness = self.rng.random()  # how often the dispatcher has room
        self.now = 0.0
        self.serial = 0
        self.waiting: dict[int, Ticket] = {}
        self.running: dict[int, Ticket] = {}
        self.ends: Counter[int] = Counter()
        self.order: dict[tuple[str, str], list[int]] = defaultdict(list)  # ids of first offers, not yet out

    def run(self, events: int) -> None:
        moves = [self.arrive, self.arrive, self.take, self.take, self.finish, self.hang_up, self.expire]
        for _ in range(events):
            self.now += self.rng.expovariate(20.0)
            self.rng.choice(moves)()
            self.check()
        self.eagerness = 1.0
        while self.waiting:
            self.take()
            self.expire()
            self.check()
        while self.running:
            self.finish(again=False)
        assert len(self.queue) == self.queue.tokens == 0
        assert self.queue.next_event(self.now) is None
        assert len(self.ends) == self.serial, "a ticket never ended"
        assert set(self.ends.values()) == {1}, "a ticket ended twice"

    def check(self) -> None:
        self.queue.check()
        # Overdue tickets have left the order already, and wait for `expire`.
        in_order = [each for each in self.waiting.values() if each.id not in self.queue._overdue]
        assert len(self.queue) == len(in_order)
        assert self.queue.tokens == sum(each.tokens for each in in_order)

    def arrive(self) -> None:
        tenant = self.rng.choice(list(self.tenants))
        self.serial += 1
        patience = self.rng.choice([None, None, 0.5, 5.0])
        self.offer(
            Ticket(
                id=self.serial,
                tenant=tenant,
                service_class=self.rng.choice(CLASSES),
                weight=self.tenants[tenant],
                tokens=self.rng.choice([1, 30, 500, 5_000]),
                arrived=self.now,
                deadline=None if patience is None else self.now + patience,
            )
        )

    def offer(self, ticket: Ticket) -> None:
        level = LEVELS[ticket.service_class]
        before = len(self.queue), self.queue.tokens
        try:
            displaced = self.queue.offer(ticket, self.now)
        except QueueRefusal as refusal:
            self.end(ticket)
            self.check_refusal(refusal, ticket, *before)
            return
        for each in displaced:
            assert LEVELS[each.service_class] >= level, "a better class was pushed out"
            assert each.service_class != ticket.service_class or each.tenant != ticket.tenant
            self.leave(each)
            self.end(each)
        self.waiting[ticket.id] = ticket
        self.order[ticket.tenant, ticket.service_class].append(ticket.id)

    def check_refusal(self, refusal: QueueRefusal, ticket: Ticket, requests: int, tokens: int) -> None:
        assert (len(self.queue), self.queue.tokens) == (requests, tokens), "a refusal changed the queue"
        assert refusal.retry_after >= 1
        if refusal.status == 503:
            assert ticket.deadline is not None
            return
        assert requests, "an empty queue is full"
        full = requests == self.limits.max_requests
        assert full or tokens + ticket.tokens > self.limits.max_tokens, "refused although there was room"
        if ticket.service_class == "interactive" and requests > self.queue.counts["interactive"]:
            left = self.limits.max_tokens - self.queue._classes["interactive"].tokens
            assert ticket.tokens > left, "the top class was shed before a lower one"

    def take(self) -> None:
        open_classes = {name for name in CLASSES if self.rng.random() < self.eagerness}
        barred = {tenant for tenant in self.tenants if self.rng.random() < 0.2}
        ticket = self.queue.take(self.now, lambda name, tenant: name in open_classes and tenant not in barred)
        if ticket is None:
            waiting = {tenant for name in open_classes for tenant in self.queue._classes[name].active}
            assert waiting <= barred, "there was room and nobody went"
            return
        assert ticket.service_class in open_classes, "its class had no room"
        assert ticket.tenant not in barred, "its tenant had no room"
        assert ticket.deadline is None or ticket.deadline > self.now, "it had expired"
        line = [
            each
            for each in self.order[ticket.tenant, ticket.service_class]
            if each not in self.queue._overdue
        ]
        assert line[0] == ticket.id, "a tenant's tickets changed their order"
        self.leave(ticket)
        self.running[ticket.id] = ticket

    def finish(self, again: bool = True) -> None:
        if not self.running:
            return
        ticket = self.running.pop(self.rng.choice(list(self.running)))
        if again and self.rng.random() < 0.1:  # its replica failed before the first byte
            self.queue.served(ticket, 0, self.now)
            ticket.arrived = self.now  # so that the order of a tenant's tickets stays easy to tell
            self.offer(ticket)
            return
        self.queue.served(ticket, self.rng.randint(0, 2 * ticket.tokens), self.now)
        self.end(ticket)

    def hang_up(self) -> None:
        ticket = self.rng.choice([*self.waiting.values(), *self.running.values(), None])
        if ticket is None:
            return
        self.queue.withdraw(ticket)
        if ticket.id in self.waiting:
            self.leave(ticket)
            self.end(ticket)

    def expire(self) -> None:
        for ticket in self.queue.expire(self.now):
            assert ticket.deadline is not None
            assert ticket.deadline <= self.now
            self.leave(ticket)
            self.end(ticket)

    def leave(self, ticket: Ticket) -> None:
        del self.waiting[ticket.id]
        self.order[ticket.tenant, ticket.service_class].remove(ticket.id)

    def end(self, ticket: Ticket) -> None:
        self.ends[ticket.id] += 1


@pytest.mark.parametrize("first", range(0, WORLDS, 10))
def test_sixty_thousand_events_keep_every_invariant(first: int) -> None:
    for seed in range(first, first + 10):
        world = World(seed)
        try:
            world.run(EVENTS_PER_WORLD)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
