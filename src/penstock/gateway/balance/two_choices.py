"""Two at random, and the less loaded of them: nearly as even as looking at all, and it never herds.

Several gateways that all know the same stale reports would send everything to the same replica if
each chose the least loaded one.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.gateway.balance.least_tokens import LeastTokens
from penstock.gateway.balance.policy import PolicyOptions, Query, Replica


class TwoChoices:
    def __init__(self, options: PolicyOptions) -> None:
        self._draw = options.draw
        self._least = LeastTokens(options)

    def choose(self, query: Query, replicas: Sequence[Replica], now: float) -> Replica:
        if len(replicas) > 2:
            first = int(self._draw() * len(replicas))
            second = int(self._draw() * (len(replicas) - 1))
            second += second >= first
            replicas = (replicas[first], replicas[second])
        return self._least.choose(query, replicas, now)

    def placed(self, query: Query, replica: Replica, now: float) -> None:
        self._least.placed(query, replica, now)

    def gone(self, name: str) -> None:
        self._least.gone(name)
