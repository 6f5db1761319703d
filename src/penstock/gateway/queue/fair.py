"""The queue of one model: classes with ageing, fair between tenants, bounded, with deadlines."""

from __future__ import annotations

import heapq
import math

from penstock.gateway.queue.displace import victims
from penstock.gateway.queue.flow import ClassQueue
from penstock.gateway.queue.rate import DrainRate
from penstock.gateway.queue.ticket import LEVELS, QueueLimits, QueueRefusal, Room, ServiceClass, Ticket

# Seconds that a refused client is told to wait: at least, and at most.
MIN_RETRY, MAX_RETRY = 1.0, 300.0


class FairQueue:
    """A ticket is in the queue from `offer` until exactly one of: `take` returns it, a later `offer` returns
    it as displaced, `expire` returns it, or `withdraw` removes it. After `take`, call `served` once."""

    def __init__(self, limits: QueueLimits) -> None:
        self.limits = limits
        self._classes: dict[ServiceClass, ClassQueue] = {name: ClassQueue(name) for name in LEVELS}
        self._rate = DrainRate()
        self._requests = 0
        self._debt = 0.0  # tokens owed to better classes since the last turn of an aged one
        self._deadlines: list[tuple[float, int, Ticket]] = []
        self._overdue: dict[int, Ticket] = {}  # out of the order, not yet returned by `expire`

    def __len__(self) -> int:
        """How many wait."""
        return self._requests

    @property
    def tokens(self) -> int:
        """The most that those who wait can take."""
        return sum(queue.tokens for queue in self._classes.values())

    @property
    def counts(self) -> dict[ServiceClass, int]:
        """How many wait, by class."""
        return {name: len(queue) for name, queue in self._classes.items()}

    def offer(self, ticket: Ticket, now: float) -> list[Ticket]:
        """Queue it, and return the tickets that were pushed out to make room; or raise QueueRefusal."""
        self._rate.advance(now)
        self._check(ticket)
        if ticket.deadline is not None:
            self._refuse_late(ticket, ticket.deadline, now)
        displaced = victims(ticket, self._classes, self.limits)
        if displaced is None:
            raise self._full(ticket)
        for each in displaced:
            self._remove(each)
        self._classes[ticket.service_class].add(ticket)
        self._requests += 1
        if ticket.deadline is not None:
            heapq.heappush(self._deadlines, (ticket.deadline, ticket.id, ticket))
            self._tidy()
        return displaced

    def take(self, now: float, room: Room) -> Ticket | None:
        """The next in order who has room. A class or tenant without room is passed over, and loses nothing
        by it: it is the first again as soon as it has room."""
        self._rate.advance(now)
        self._find_overdue(now)
        queue, aged = self._next_class(room)
        if queue is None:
            self._rate.saturated = self._requests > 0
            return None
        ticket = queue.pop(room)
        if aged:
            self._debt = ticket.cost * (1 / self.limits.aged_share - 1)
        else:
            self._debt = max(0.0, self._debt - ticket.cost)
        self._rate.drained(ticket.cost)
        self._left()
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """The client has left; a ticket that is not here is no error."""
        self._overdue.pop(ticket.id, None)
        self._remove(ticket)

    def expire(self, now: float) -> list[Ticket]:
        """The tickets whose deadline has passed, out of the queue."""
        self._rate.advance(now)
        self._find_overdue(now)
        expired = list(self._overdue.values())
        self._overdue.clear()
        return expired

    def served(self, ticket: Ticket, tokens: int, now: float) -> None:
        """A ticket that was taken has ended, and really took so many tokens; 0 if it never ran."""
        self._rate.advance(now)
        self._classes[ticket.service_class].correct(ticket, tokens)

    def next_event(self, now: float) -> float | None:
        """When to call `expire`, if nothing else happens before."""
        if self._overdue:
            return now
        heap = self._deadlines
        while heap and not self._waits(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def wait(self, ticket: Ticket) -> float | None:
        """Seconds that a ticket like this one would wait if it came now; None if nothing is known yet.

        What is ahead of it, at the rate at which the queue drains. Who comes later and overtakes is
        not in it, so the wait may turn out longer."""
        level = LEVELS[ticket.service_class]
        ahead = self._classes[ticket.service_class].ahead(ticket)
        ahead += sum(queue.cost for name, queue in self._classes.items() if LEVELS[name] < level)
        return self._rate.seconds(ahead)

    def retry_after(self, ticket: Ticket) -> float:
        """Seconds after which a client that was turned away, or pushed out, may come again."""
        wait = self.wait(ticket)
        return MIN_RETRY if wait is None else min(max(wait, MIN_RETRY), MAX_RETRY)

    def check(self) -> None:
        """Assert the invariants; for tests."""
        for queue in self._classes.values():
            queue.check()
        assert self._requests == sum(len(queue) for queue in self._classes.values())
        assert self._requests <= self.limits.max_requests
        assert self.tokens <= self.limits.max_tokens or self._requests == 1
        assert len(self._deadlines) <= 2 * self.limits.max_requests + 65  # tidied as tickets come

    def _next_class(self, room: Room) -> tuple[ClassQueue | None, bool]:
        """The best class that has tickets and room, or one below that has aged past it and has its turn;
        and whether it is such a one.

        The rank is the engine's: arrival, and `ageing_seconds` for each level. It orders the classes by
        their oldest tickets; within a class, tenants are served fairly."""
        best: ClassQueue | None = None
        first: ClassQueue | None = None
        lowest = math.inf
        for name, queue in self._classes.items():
            if queue.tickets and queue.first(room) is not None:
                if best is None:
                    best = queue
                rank = queue.oldest.arrived + LEVELS[name] * self.limits.ageing_seconds
                if rank < lowest:
                    first, lowest = queue, rank
        if first is best or self._debt > 0:
            return best, False
        return first, True

    def _refuse_late(self, ticket: Ticket, deadline: float, now: float) -> None:
        left, wait = deadline - now, self.wait(ticket)
        if left <= 0:
            raise QueueRefusal(
                "The request's deadline had passed before it could be queued. Allow it more time.",
                reason="deadline",
                retry_after=self.retry_after(ticket),
                status=503,
            )
        if wait is not None and wait > left:
            raise QueueRefusal(
                f"The request would wait about {wait:.1f} s for a replica, and its deadline is in "
                f"{left:.1f} s. Allow it more time, or try again later.",
                reason="deadline",
                retry_after=self.retry_after(ticket),
                status=503,
            )

    def _full(self, ticket: Ticket) -> QueueRefusal:
        limits, flow = self.limits, self._classes[ticket.service_class].active.get(ticket.tenant)
        mine = len(flow.tickets) if flow else 0
        return QueueRefusal(
            f"The queue is full: {self._requests} requests with {self.tokens} tokens wait, of at most "
            f"{limits.max_requests} requests and {limits.max_tokens} tokens; {mine} are of this "
            "tenant and class. Try again later.",
            reason="full",
            retry_after=self.retry_after(ticket),
            status=429,
        )

    def _check(self, ticket: Ticket) -> None:
        if not 0 < ticket.weight < math.inf:
            raise ValueError(f"A ticket's weight must be a number above 0, got {ticket.weight}.")
        if ticket.tokens < 0:
            raise ValueError(f"A ticket's tokens must be 0 or more, got {ticket.tokens}.")
        if ticket.id in self._overdue or any(ticket.id in queue.tickets for queue in self._classes.values()):
            raise ValueError(f"A ticket with the id {ticket.id} is in the queue already.")

    def _waits(self, entry: tuple[float, int, Ticket]) -> bool:
        """Whether this entry of the deadlines is still of a ticket in the queue."""
        deadline, _, ticket = entry
        waiting = self._classes[ticket.service_class].tickets.get(ticket.id)
        return waiting is ticket and ticket.deadline == deadline

    def _find_overdue(self, now: float) -> None:
        heap = self._deadlines
        while heap and heap[0][0] <= now:
            entry = heapq.heappop(heap)
            if self._waits(entry):
                self._remove(entry[2])
                self._overdue[entry[1]] = entry[2]

    def _tidy(self) -> None:
        """Drop the deadlines of tickets that have gone, before they outnumber the others."""
        if len(self._deadlines) > 2 * self._requests + 64:
            self._deadlines = [entry for entry in self._deadlines if self._waits(entry)]
            heapq.heapify(self._deadlines)

    def _remove(self, ticket: Ticket) -> None:
        if self._classes[ticket.service_class].remove(ticket):
            self._left()

    def _left(self) -> None:
        """One has gone out of the order, whichever way."""
        self._requests -= 1
        if not self._requests:
            self._rate.saturated = False
