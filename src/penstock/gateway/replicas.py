"""A replica as administrators see it: in the console, in `penstock top`, in the list of backends."""

from __future__ import annotations

from penstock.gateway.dispatch import Member
from penstock.observe.snapshot import ReplicaNow


def replica_now(member: Member, now: float, prefix_hits: float | None) -> ReplicaNow:
    load = member.backend.load()
    return ReplicaNow(
        name=member.backend.name,
        state=member.state(now),
        reason=member.reason(now),
        requests=member.replica.requests,
        tokens=member.replica.tokens,
        capacity=member.backend.capacity,
        running=None if load is None else load.running,
        waiting=None if load is None else load.waiting,
        kv_usage=None if load is None else load.kv_usage,
        prefix_hits=prefix_hits,
        drained=member.drained,
    )
