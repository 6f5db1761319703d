"""What a policy sees, what it is asked, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Load:
    """As the server itself says: requests, and the share of its KV memory in use where it has one."""

    running: int
    waiting: int
    kv_usage: float | None = None
    acceptance: float | None = None  # share of the tokens drafted ahead; no policy looks at it


@dataclass(slots=True, eq=False)
class Replica:
    """One server or engine of a model; kept by the dispatcher, only read by policies."""

    name: str
    weight: float = 1.0
    joined: float = 0.0  # when it last came into rotation, monotonic seconds
    requests: int = 0  # sent by this gateway and not yet ended
    tokens: int = 0  # the most that these can take
    load: Load | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """What is known of a request when a replica is chosen for it."""

    tokens: int
    prefix: Sequence[bytes] = ()  # digests of its first blocks, shortest prefix first; see `blocks.py`
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """What policies can be told; each reads what concerns it."""

    draw: Callable[[], float]  # a random number from 0 up to 1, such as `Random(seed).random`
    slow_start: float = 10.0  # seconds after which a new replica has its full weight
    load_bound: float = 1.25  # a preferred replica may have so many times the mean load
    max_prefixes: int = 65_536  # prefixes remembered, about 250 bytes each

    def __post_init__(self) -> None:
        if not self.load_bound >= 1:
            raise ValueError(
                f"load_bound must be at least 1, got {self.load_bound}: nobody is below the mean."
            )


class Policy(Protocol):
    """`replicas` are those that may be chosen now: in rotation, with room, at least one."""

    def choose(self, query: Query, replicas: Sequence[Replica], now: float) -> Replica: ...

    def placed(self, query: Query, replica: Replica, now: float) -> None:
        """The request was sent there."""

    def gone(self, name: str) -> None:
        """The replica has left, and what it had cached with it."""
