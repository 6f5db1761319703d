"""The replica with the fewest outstanding tokens for its weight."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.gateway.balance.load import outstanding, weights
from penstock.gateway.balance.policy import PolicyOptions, Query, Replica


class LeastTokens:
    """The request itself counts too, so that among idle replicas the weightiest goes first; among equals
    the one with the most free memory, then the one that was used longest ago."""

    def __init__(self, options: PolicyOptions) -> None:
        self._options = options
        self._placed: dict[str, int] = {}  # by name, the number of the last request that went there
        self._count = 0

    def choose(self, query: Query, replicas: Sequence[Replica], now: float) -> Replica:
        tokens = outstanding(query, replicas)
        shares = weights(replicas, now, self._options)

        def order(index: int) -> tuple[float, float, int]:
            replica = replicas[index]
            usage = replica.load.kv_usage if replica.load is not None else None
            return (
                (tokens[index] + query.tokens) / shares[index],
                usage or 0.0,
                self._placed.get(replica.name, 0),
            )

        return replicas[min(range(len(replicas)), key=order)]

    def placed(self, query: Query, replica: Replica, now: float) -> None:
        self._count += 1
        self._placed[replica.name] = self._count

    def gone(self, name: str) -> None:
        self._placed.pop(name, None)
