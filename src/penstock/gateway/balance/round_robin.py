"""Each in turn, as often as its weight says, and spread evenly: a a b a, not a a a b."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.gateway.balance.load import weights
from penstock.gateway.balance.policy import PolicyOptions, Query, Replica


class RoundRobin:
    def __init__(self, options: PolicyOptions) -> None:
        self._options = options
        self._due: dict[str, float] = {}  # what each is behind (or, below 0, ahead), in weights

    def choose(self, query: Query, replicas: Sequence[Replica], now: float) -> Replica:
        shares = weights(replicas, now, self._options)
        for replica, share in zip(replicas, shares, strict=True):
            self._due[replica.name] = self._due.get(replica.name, 0.0) + share
        chosen = max(replicas, key=lambda replica: self._due[replica.name])
        self._due[chosen.name] -= sum(shares)
        return chosen

    def placed(self, query: Query, replica: Replica, now: float) -> None:
        pass

    def gone(self, name: str) -> None:
        self._due.pop(name, None)
