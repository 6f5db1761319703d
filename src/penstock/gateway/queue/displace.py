"""Who makes room in a full queue: lower classes first, and whoever holds most for its weight.

A newcomer pushes out tickets of lower classes. Within its own class it pushes out tickets of a
tenant only as long as that one still holds at least as much for its weight as the newcomer's own
tenant: so each keeps the share it is entitled to when all want more, a flood pushes out itself
alone, and two tenants never push each other out in turns.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from penstock.gateway.queue.flow import ClassQueue, Flow
from penstock.gateway.queue.ticket import LEVELS, QueueLimits, ServiceClass, Ticket


def victims(
    ticket: Ticket, classes: Mapping[ServiceClass, ClassQueue], limits: QueueLimits
) -> list[Ticket] | None:
    """The tickets that must go for `ticket` to fit; None if it cannot. Changes nothing."""
    requests = sum(len(queue) for queue in classes.values())
    tokens = sum(queue.tokens for queue in classes.values())

    def fits() -> bool:
        # One that is larger than the whole queue may be in it alone.
        return not requests or (
            requests < limits.max_requests and tokens + ticket.tokens <= limits.max_tokens
        )

    gone: list[Ticket] = []
    for name in reversed(LEVELS):
        if fits() or LEVELS[name] < LEVELS[ticket.service_class]:
            break
        rivals, least = dict(classes[name].active), 0.0
        if name == ticket.service_class:
            mine = rivals.pop(ticket.tenant, None) or Flow(ticket.tenant)
            least = _held(len(mine.tickets) + 1, mine.tokens + ticket.tokens, ticket.weight, limits)
        for victim, left in _by_holding(rivals, limits):
            if left < least or fits():
                break
            gone.append(victim)
            requests -= 1
            tokens -= victim.tokens
    return gone if fits() else None


def _held(requests: int, tokens: int, weight: float, limits: QueueLimits) -> float:
    """The share of the queue that a tenant holds, of whichever it holds more, for its weight."""
    return max(requests / limits.max_requests, tokens / limits.max_tokens) / weight


def _by_holding(flows: Mapping[str, Flow], limits: QueueLimits) -> Iterator[tuple[Ticket, float]]:
    """The newest ticket of whoever holds most, again and again, and what that one holds without it."""
    heap = [
        (-_held(len(flow.tickets), flow.tokens, flow.weight, limits), tenant, len(flow.tickets), flow.tokens)
        for tenant, flow in flows.items()
    ]
    heapq.heapify(heap)
    newest: dict[str, Iterator[Ticket]] = {}
    while heap:
        _, tenant, requests, tokens = heap[0]
        flow = flows[tenant]
        ticket = next(newest.setdefault(tenant, reversed(flow.tickets.values())))
        requests, tokens = requests - 1, tokens - ticket.tokens
        left = _held(requests, tokens, flow.weight, limits)
        yield ticket, left
        if requests:
            heapq.heapreplace(heap, (-left, tenant, requests, tokens))
        else:
            heapq.heappop(heap)
