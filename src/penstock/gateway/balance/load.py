"""How loaded each replica is, in tokens for each unit of its weight."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.gateway.balance.policy import PolicyOptions, Query, Replica

SLOW_START_SHARE = 0.1  # of its weight, that a replica begins with


def effective_weight(replica: Replica, now: float, slow_start: float) -> float:
    """Its weight, or a growing part of it in the first `slow_start` seconds after it joined: its caches
    are cold, and all the others' work at once would be its first."""
    age = now - replica.joined
    if age >= slow_start:
        return replica.weight
    return replica.weight * (SLOW_START_SHARE + (1 - SLOW_START_SHARE) * max(age, 0.0) / slow_start)


def weights(replicas: Sequence[Replica], now: float, options: PolicyOptions) -> list[float]:
    return [effective_weight(replica, now, options.slow_start) for replica in replicas]


def outstanding(query: Query, replicas: Sequence[Replica]) -> list[float]:
    """Tokens of work at each replica: what was sent from here, and what its own report shows beyond it.

    Others' requests are taken to be as large as ours are on average, or as `query` if there are none."""
    ours = sum(replica.requests for replica in replicas)
    typical = sum(replica.tokens for replica in replicas) / ours if ours else query.tokens
    return [replica.tokens + typical * _foreign(replica) for replica in replicas]


def _foreign(replica: Replica) -> int:
    if replica.load is None:
        return 0
    return max(0, replica.load.running + replica.load.waiting - replica.requests)


def within_bound(
    query: Query, replicas: Sequence[Replica], now: float, options: PolicyOptions
) -> list[Replica]:
    """The replicas that a preference may choose: none has more than `load_bound` times the mean load.

    The mean is taken as if each had one more such request, so that in a quiet fleet a second one
    at the same replica is not too many. The least loaded is always among them."""
    shares = weights(replicas, now, options)
    tokens = outstanding(query, replicas)
    limit = options.load_bound * (sum(tokens) + query.tokens * len(replicas)) / sum(shares)
    return [
        replica
        for replica, share, work in zip(replicas, shares, tokens, strict=True)
        if work <= limit * share
    ]
