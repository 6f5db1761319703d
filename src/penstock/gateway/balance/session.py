"""A session stays with its replica, as long as that one is there and not overloaded.

Rendezvous hashing: each replica draws a number from its name and the session, the best wins. When
a replica comes or goes, only the sessions it wins or had move. Without a session: least tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b

from penstock.gateway.balance.least_tokens import LeastTokens
from penstock.gateway.balance.load import effective_weight, within_bound
from penstock.gateway.balance.policy import PolicyOptions, Query, Replica


class Session:
    def __init__(self, options: PolicyOptions) -> None:
        self._options = options
        self._least = LeastTokens(options)

    def choose(self, query: Query, replicas: Sequence[Replica], now: float) -> Replica:
        session = query.session
        if session is None:
            return self._least.choose(query, replicas, now)

        def score(replica: Replica) -> float:
            weight = effective_weight(replica, now, self._options.slow_start)
            return -weight / math.log(_uniform(replica.name, session))

        return max(within_bound(query, replicas, now, self._options), key=score)

    def placed(self, query: Query, replica: Replica, now: float) -> None:
        self._least.placed(query, replica, now)

    def gone(self, name: str) -> None:
        self._least.gone(name)


def _uniform(name: str, session: str) -> float:
    """A number between 0 and 1, neither included, the same in every process and for ever."""
    text = f"{name}\0{session}".encode("utf-8", "surrogatepass")
    number = int.from_bytes(blake2b(text, digest_size=6).digest(), "big")
    return (number + 0.5) / 2**48
