"""From the queue of a model to one of its replicas: who goes next, and where to.

The queue and the policy decide (`queue`, `balance`); this carries it out: it wakes whoever may go, keeps
count of what each replica has, and takes requests back from replicas that are lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, Literal

from penstock.gateway.backends import Backend, BackendError
from penstock.gateway.balance import Policy, Query, Replica
from penstock.gateway.exchange import Exchange
from penstock.gateway.queue import LEVELS, FairQueue, Places, QueueRefusal, ServiceClass, Ticket
from penstock.gateway.queue.ticket import Reason
from penstock.gateway.resilience import Blame
from penstock.observe.snapshot import Standing

# Of a server that works through its requests as they came, batch work may take only so much: what it
# has taken cannot be overtaken any more.
BATCH_SHARE: Final = 0.75
# A server that has just been added may not have answered its first probe; later it is simply not there.
NEW_SECONDS: Final = 5.0


logger = logging.getLogger("penstock.gateway")


class ReplicaLostError(BackendError):
    """The replica was taken out of the rotation before it had begun to answer."""

    def __init__(self) -> None:
        super().__init__("The replica that should answer stopped responding.", status=503)


class Member:
    """A replica in the rotation of its model."""

    __slots__ = (
        "_added",
        "backend",
        "blame",
        "drained",
        "healthy",
        "leaving",
        "places",
        "replica",
        "running",
        "share",
        "when_idle",
    )

    def __init__(self, backend: Backend, weight: float, share: int, now: float) -> None:
        self.backend = backend
        self.share = share
        self._added = now
        self.blame = Blame()
        self.replica = Replica(name=backend.name, weight=weight, joined=now)
        self.healthy = backend.health.state(now) == "healthy"  # as last looked at
        self.leaving = False  # takes nothing new; what it has it finishes
        self.drained = False  # the same, by an administrator's word, and until another
        self.places = dict.fromkeys(LEVELS, 0)  # choices it has, by class
        self.running: set[Exchange] = set()
        self.when_idle: Callable[[], None] | None = None  # called when one that leaves has nothing left

    def look(self, now: float) -> bool:
        """Whether it may get requests now."""
        healthy = self.state(now) == "healthy"
        if healthy != self.healthy:
            self._turned(healthy, now)
        return healthy

    def state(self, now: float) -> Standing:
        if self.leaving:
            return "leaving"
        # One that is not well is taken for that: what it has not begun to answer goes elsewhere.
        health = self.backend.health.state(now)
        return "drained" if self.drained and health == "healthy" else health

    def reason(self, now: float) -> str | None:
        """Why it gets no requests, as the end of a sentence; None when it does."""
        if self.leaving:
            return "it is leaving"
        return self.backend.health.reason(now) or (
            "an administrator has drained it" if self.drained else None
        )

    def _turned(self, healthy: bool, now: float) -> None:
        self.healthy = healthy
        name = self.backend.name
        if healthy:
            self.replica.joined = now  # a replica that comes back starts as slowly as a new one
            logger.info("The replica %s gets requests.", name)
        elif not self.leaving:
            reason = (self.reason(now) or "").rstrip(".")
            logger.warning("The replica %s gets no requests: %s.", name, reason)

    @property
    def capacity(self) -> float:
        """Choices it should have from this process at once."""
        return max(1.0, self.backend.capacity / self.share)

    def has_room(self, service_class: ServiceClass) -> bool:
        places, capacity = self.places, self.capacity
        if self.backend.prioritizes:  # urgent work overtakes what is there
            level = LEVELS[service_class]
            return sum(taken for name, taken in places.items() if LEVELS[name] <= level) < capacity
        if service_class == "batch":
            capacity = max(1.0, capacity * BATCH_SHARE)
        return sum(places.values()) < capacity

    @property
    def returns(self) -> bool:
        """Whether it is not there yet, or not any more, but somebody sees to it that it will be."""
        now = time.monotonic()
        state = self.backend.health.state(now)
        if self.leaving or self.drained or state not in ("starting", "dead"):
            return False
        return self.backend.restarts or (state == "starting" and now - self._added < NEW_SECONDS)


class Waiting:
    """A request on its way to a place."""

    __slots__ = ("choices", "exchange", "fits", "place", "query", "ticket")

    def __init__(
        self,
        exchange: Exchange,
        ticket: Ticket,
        query: Query,
        choices: int,
        fits: Callable[[Backend], bool],
    ) -> None:
        self.exchange = exchange
        self.ticket = ticket
        self.query = query
        self.choices = choices
        self.fits = fits
        self.place: asyncio.Future[Member] | None = None

    def late(self, now: float) -> bool:
        return self.ticket.deadline is not None and now >= self.ticket.deadline


class Dispatcher:
    """Everybody who waits for one model, and everybody who answers for it."""

    def __init__(self, queue: FairQueue, policy: Policy, share: int = 1) -> None:
        self.queue = queue
        self.policy = policy
        self._share = share  # this is one of so many processes that fill the same replicas
        self.members: dict[str, Member] = {}
        self._drained: frozenset[str] = frozenset()  # by name, whether they are there or not
        self._waiting: dict[int, Waiting] = {}
        # Whose turn has come, but only some replicas could answer, and those are full.
        self._parked: dict[int, Waiting] = {}
        self._places = Places()

    # ------------------------------------------------------------ replicas

    def add(self, backend: Backend, weight: float) -> None:
        now = time.monotonic()
        member = self.members[backend.name] = Member(backend, weight, self._share, now)
        member.drained = backend.name in self._drained
        self._pump(now)

    def drain(self, names: frozenset[str]) -> None:
        """Give these nothing new, now or when they come, and all others their share."""
        if names != self._drained:
            self._drained = names
            for name, member in self.members.items():
                member.drained = name in names
            self._pump(time.monotonic())

    def remove(self, name: str) -> Member | None:
        """Take a replica out of the rotation. What it has it may finish; the caller closes it then."""
        member = self.members.pop(name, None)
        if member is not None:
            member.leaving = True
            self.policy.gone(name)
        return member

    # ------------------------------------------------------------ requests

    async def place(self, waiting: Waiting) -> Member:
        """Wait for a place. Raises QueueRefusal, or BackendError if nobody is there who could answer."""
        now = time.monotonic()
        self._check_somebody(waiting, now)
        for shed in self.queue.offer(waiting.ticket, now):
            self._refuse(shed, "Others with a better claim took its place in the full queue.", 429)
        self._places.asked(waiting.ticket.service_class, waiting.ticket.tenant, now)
        waiting.place = asyncio.get_running_loop().create_future()
        self._waiting[waiting.ticket.id] = waiting
        self._pump(now)
        try:
            return await waiting.place
        except BaseException:
            place = waiting.place
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave(place.result(), waiting)  # it was given a place as it gave up
                self.finished(waiting, 0)
            else:
                self._forget(waiting)
            raise

    def again(self, waiting: Waiting, tried: Iterable[str]) -> Member | None:
        """Another replica for a request that has waited already, if there is one that was not tried."""
        now = time.monotonic()
        fitting = [
            member
            for name, member in self.members.items()
            if name not in tried and member.look(now) and waiting.fits(member.backend)
        ]
        return self._seat(waiting, fitting, now) if fitting else None

    def returns(self, waiting: Waiting) -> bool:
        """Whether a replica that could answer is not there now, but will be."""
        return any(member.returns for member in self.members.values() if waiting.fits(member.backend))

    def leave(self, member: Member, waiting: Waiting) -> None:
        """The request is not at the replica any more, whatever became of it."""
        replica = member.replica
        replica.requests -= 1
        replica.tokens -= waiting.ticket.tokens
        ticket = waiting.ticket
        member.places[ticket.service_class] -= waiting.choices
        self._places.given_back(ticket.service_class, ticket.tenant, waiting.choices)
        member.running.discard(waiting.exchange)
        if member.when_idle is not None and not member.running:
            member.when_idle()

    def finished(self, waiting: Waiting, tokens: int) -> None:
        """A request that was placed has ended, and took so many tokens. To be called once."""
        now = time.monotonic()
        self.queue.served(waiting.ticket, tokens, now)
        self._pump(now)

    # ------------------------------------------------------------ the passing of time

    @property
    def healthy_count(self) -> int:
        """Replicas that get requests."""
        return sum(member.healthy for member in self.members.values())

    def tick(self) -> None:
        """To be called several times a second: deadlines pass, replicas come and go."""
        now = time.monotonic()
        late = self.queue.expire(now)
        late += [parked.ticket for parked in self._parked.values() if parked.late(now)]
        for ticket in late:
            self._refuse(ticket, "Its turn did not come before its deadline.", 503)
        self._pump(now)
        healthy = [member for member in self.members.values() if member.look(now)]
        for waiting in [*self._waiting.values(), *self._parked.values()]:
            try:
                self._check_somebody(waiting, now)
            except BackendError as error:
                self._fail(waiting, error)
        if not healthy:
            return
        for member in self.members.values():
            if not member.healthy and member.state(now) not in ("leaving", "drained"):
                self._take_back(member)

    def _take_back(self, member: Member) -> None:
        """A lost replica keeps what it has begun to answer; the rest can be answered by another."""
        for exchange in list(member.running):
            if not exchange.started:
                exchange.abort(ReplicaLostError())

    def _check_somebody(self, waiting: Waiting, now: float) -> None:
        members = [member for member in self.members.values() if waiting.fits(member.backend)]
        if not any(member.look(now) or member.returns for member in members):
            reasons = {member.reason(now) for member in members}
            known = "; ".join(sorted(reason for reason in reasons if reason))
            detail = f" ({known})" if known else ""
            raise BackendError(f"No replica of this model can answer now{detail}.", status=503)

    # ------------------------------------------------------------ placing

    def _pump(self, now: float) -> None:
        """Give places to all whose turn has come."""
        if not self._waiting and not self._parked:
            return
        healthy = [member for member in self.members.values() if member.look(now)]
        if not healthy:
            return
        places = sum(member.capacity for member in healthy)

        def room(service_class: ServiceClass, tenant: str) -> bool:
            return any(member.has_room(service_class) for member in healthy) and self._places.may_take(
                service_class, tenant, places
            )

        for waiting in list(self._parked.values()):
            self._give_place(waiting, healthy, now)
        while (ticket := self.queue.take(now, room)) is not None:
            waiting = self._waiting.pop(ticket.id)
            self._parked[ticket.id] = waiting
            self._give_place(waiting, healthy, now)

    def _give_place(self, waiting: Waiting, healthy: list[Member], now: float) -> None:
        """Seat a request whose turn has come. Where only some replicas fit, it may still have to wait for
        one of them: outside the queue, so that it holds up nobody who fits elsewhere."""
        ticket = waiting.ticket
        assert waiting.place is not None, "only who waits for a place is in the queue"
        fitting = [member for member in healthy if waiting.fits(member.backend)]
        if not fitting:
            self._fail(waiting, BackendError("No replica of this model can answer now.", status=503))
            return
        free = [member for member in fitting if member.has_room(ticket.service_class)]
        if not free:
            if len(self._parked) > sum(member.capacity for member in fitting):
                self._refuse(
                    ticket, "The replicas that could answer are full, and others wait for them.", 429
                )
            return
        del self._parked[ticket.id]
        member = self._seat(waiting, free, now)
        if waiting.place.done():  # it was cancelled in this very moment
            self.leave(member, waiting)
            self.queue.served(ticket, 0, now)
        else:
            waiting.place.set_result(member)

    def _seat(self, waiting: Waiting, members: list[Member], now: float) -> Member:
        for member in members:
            member.replica.load = member.backend.load()
        chosen = self.policy.choose(waiting.query, [member.replica for member in members], now)
        self.policy.placed(waiting.query, chosen, now)
        [member] = [member for member in members if member.replica is chosen]
        chosen.requests += 1
        chosen.tokens += waiting.ticket.tokens
        ticket = waiting.ticket
        member.places[ticket.service_class] += waiting.choices
        self._places.taken(ticket.service_class, ticket.tenant, waiting.choices)
        member.running.add(waiting.exchange)
        return member

    def _refuse(self, ticket: Ticket, message: str, status: Literal[429, 503]) -> None:
        waiting = self._waiting.get(ticket.id) or self._parked.get(ticket.id)
        if waiting is not None:
            reason: Reason = "full" if status == 429 else "deadline"
            retry_after = self.queue.retry_after(ticket)
            self._fail(waiting, QueueRefusal(message, reason=reason, retry_after=retry_after, status=status))

    def _fail(self, waiting: Waiting, error: Exception) -> None:
        self._forget(waiting)
        if waiting.place is not None and not waiting.place.done():
            waiting.place.set_exception(error)

    def _forget(self, waiting: Waiting) -> None:
        """It waits no more, and got nothing."""
        if self._parked.pop(waiting.ticket.id, None) is not None:
            self.queue.served(waiting.ticket, 0, time.monotonic())
        elif self._waiting.pop(waiting.ticket.id, None) is not None:
            self.queue.withdraw(waiting.ticket)
