"""The tickets of one class: fair between tenants by tokens, first come first served within one.

Start-time fair queueing. Each tenant has a virtual time at which its next ticket starts; the
earliest goes first, and moves its tenant on by `cost / weight`. A tenant that comes back from
idleness starts where the others are, so time in which it asked for nothing is worth nothing.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field

from penstock.gateway.queue.ticket import Room, ServiceClass, Ticket

LEARNING = 0.9  # how much of what was known of a tenant's estimates one more request leaves
IDLE_FLOWS = 256  # tenants without tickets that are kept before the first is forgotten


@dataclass(slots=True, eq=False)
class Flow:
    """One tenant in one class."""

    tenant: str
    weight: float = 1.0
    tickets: OrderedDict[int, Ticket] = field(default_factory=OrderedDict)  # by id, the next one first
    tokens: int = 0  # the most its tickets can take
    cost: float = 0.0  # what they are expected to take
    start: float = 0.0  # virtual time, in tokens by weight, of its next ticket
    floor: float = 0.0  # where the others were when its first ticket came: nothing is refunded below
    entry: int = -1  # the serial number of its valid entry in the heap
    estimated: float = 0.0  # tokens, fading
    used: float = 0.0

    @property
    def ratio(self) -> float:
        """What its requests take of what they might: most end long before max_tokens."""
        return self.used / self.estimated if self.estimated else 1.0


class ClassQueue:
    """Invariants: `active` holds exactly the flows with tickets, each with one valid entry in the heap;
    sums are those of the tickets. Every operation is O(log tenants); `ahead`, and `first` where the first
    has no room, are O(tenants)."""

    def __init__(self, service_class: ServiceClass) -> None:
        self._service_class: ServiceClass = service_class
        self.tickets: OrderedDict[int, Ticket] = OrderedDict()  # by id, the oldest first
        self.active: dict[str, Flow] = {}
        self.tokens = 0
        self.cost = 0.0
        self._flows: dict[str, Flow] = {}
        self._heap: list[tuple[float, int, Flow]] = []
        self._serial = 0
        self._virtual = 0.0  # where the order has come to: the start of the last ticket taken
        self._latest = 0.0  # the furthest that any tenant was charged
        self._sweep_at = IDLE_FLOWS

    def __len__(self) -> int:
        return len(self.tickets)

    @property
    def oldest(self) -> Ticket:
        return next(iter(self.tickets.values()))

    def add(self, ticket: Ticket) -> None:
        flow = self._flow(ticket.tenant)
        flow.weight = ticket.weight
        ticket.cost = max(1.0, ticket.tokens * flow.ratio)
        if not flow.tickets:
            flow.floor = self._base()
            flow.start = max(flow.start, flow.floor)
            self.active[flow.tenant] = flow
            self._push(flow)
        _append(flow.tickets, ticket)
        _append(self.tickets, ticket)
        flow.tokens += ticket.tokens
        flow.cost += ticket.cost
        self.tokens += ticket.tokens
        self.cost += ticket.cost

    def remove(self, ticket: Ticket) -> bool:
        """Whether it was here. Nothing is charged for it."""
        if self.tickets.get(ticket.id) is not ticket:
            return False
        flow = self.active[ticket.tenant]
        del flow.tickets[ticket.id], self.tickets[ticket.id]
        flow.tokens -= ticket.tokens
        flow.cost -= ticket.cost
        self.tokens -= ticket.tokens
        self.cost -= ticket.cost
        if not flow.tickets:
            del self.active[flow.tenant]
            flow.entry = -1
            flow.cost = 0.0  # sums of floats keep crumbs
        if not self.tickets:
            self._heap.clear()
            self.cost = 0.0
            self._virtual = self._latest  # nobody waits, so nobody owes anybody a turn: all begin even
        return True

    def first(self, room: Room) -> Flow | None:
        """The tenant whose turn it is, of those who have room; None if nobody has."""
        flow = self._first()
        if room(self._service_class, flow.tenant):
            return flow
        others = sorted(self.active.values(), key=lambda other: (other.start, other.entry))
        return next((other for other in others if room(self._service_class, other.tenant)), None)

    def pop(self, room: Room) -> Ticket:
        """The next in order of those who have room, of whom there is one; its tenant is charged with what it
        is expected to take."""
        flow = self.first(room)
        assert flow is not None, "nobody who waits has room"
        ticket = next(iter(flow.tickets.values()))
        self._virtual = max(self._virtual, flow.start)
        flow.start += ticket.cost / flow.weight
        self._latest = max(self._latest, flow.start)
        self.remove(ticket)
        if flow.tickets:
            self._push(flow)
        return ticket

    def correct(self, ticket: Ticket, tokens: int) -> None:
        """A ticket that was taken has ended, and really took so many tokens (none: it never ran)."""
        flow = self._flow(ticket.tenant)
        flow.start += (tokens - ticket.cost) / ticket.weight
        if tokens:
            flow.estimated = flow.estimated * LEARNING + max(1, ticket.tokens)
            flow.used = flow.used * LEARNING + tokens
        if flow.tickets:
            flow.start = max(flow.start, flow.floor)
            self._push(flow)

    def ahead(self, ticket: Ticket) -> float:
        """Tokens expected to go out before `ticket`, were it added now."""
        mine = self._flows.get(ticket.tenant) or Flow(ticket.tenant)
        start = mine.start if mine.tickets else max(mine.start, self._base())
        start += mine.cost / ticket.weight
        ahead = mine.cost
        for flow in self.active.values():
            if flow is not mine and flow.start < start:
                ahead += min(flow.cost, (start - flow.start) * flow.weight)
        return ahead

    def check(self) -> None:
        """Assert the invariants; for tests."""
        assert set(self.active) == {tenant for tenant, flow in self._flows.items() if flow.tickets}
        valid = [flow.tenant for _, serial, flow in self._heap if flow.entry == serial]
        assert sorted(valid) == sorted(self.active)
        assert self.tokens == sum(ticket.tokens for ticket in self.tickets.values())
        assert sum(len(flow.tickets) for flow in self.active.values()) == len(self.tickets)
        for flow in self.active.values():
            assert flow.tokens == sum(ticket.tokens for ticket in flow.tickets.values())
            assert flow.start >= flow.floor

    def _flow(self, tenant: str) -> Flow:
        flow = self._flows.get(tenant)
        if flow is None:
            if len(self._flows) >= self._sweep_at:
                self._sweep()
            flow = self._flows[tenant] = Flow(tenant)
        return flow

    def _sweep(self) -> None:
        """Forget idle tenants that would start anew just where they are."""
        self._flows = {
            tenant: flow for tenant, flow in self._flows.items() if flow.tickets or flow.start > self._virtual
        }
        self._sweep_at = max(IDLE_FLOWS, 2 * len(self._flows))

    def _base(self) -> float:
        """Where a tenant that comes now starts: at the first of those that wait."""
        return self._first().start if self.active else self._virtual

    def _first(self) -> Flow:
        heap = self._heap
        while True:
            _, serial, flow = heap[0]
            if flow.entry == serial:
                return flow
            heapq.heappop(heap)

    def _push(self, flow: Flow) -> None:
        """Give the flow its place in the order; an entry it had before is no longer valid."""
        self._serial += 1
        flow.entry = self._serial
        heapq.heappush(self._heap, (flow.start, self._serial, flow))
        if len(self._heap) > 2 * len(self.active) + 64:
            self._heap = [entry for entry in self._heap if entry[2].entry == entry[1]]
            heapq.heapify(self._heap)


def _append(tickets: OrderedDict[int, Ticket], ticket: Ticket) -> None:
    """At the end; but one that is older than the first, having been out and come back, goes before it."""
    older = bool(tickets) and ticket.arrived < next(iter(tickets.values())).arrived
    tickets[ticket.id] = ticket
    if older:
        tickets.move_to_end(ticket.id, last=False)
