"""A request's place in the queue, the queue's limits, and its refusals: plain data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock.errors import PenstockError

ServiceClass = Literal["interactive", "standard", "batch"]
# Best first. The level is also the priority an engine is given: lower is earlier.
LEVELS: dict[ServiceClass, int] = {"interactive": -1, "standard": 0, "batch": 1}

Reason = Literal["full", "deadline"]


@dataclass(slots=True, eq=False)
class Ticket:
    """One request. Times in monotonic seconds; `tokens` is the most it can take, prompt and answer."""

    id: int
    tenant: str
    service_class: ServiceClass
    weight: float
    tokens: int
    arrived: float
    deadline: float | None = None
    # Tokens it is expected to take, judging by what its tenant's requests really took: set by the queue.
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Units: requests, tokens, seconds, a share of tokens."""

    max_requests: int = 1000
    max_tokens: int = 2_000_000
    ageing_seconds: float = 10.0  # waiting this long is worth one class
    # Of the tokens that go out while a better class waits, at most this share goes to classes that have
    # aged past it. So a long backlog of batch work cannot turn the order of the classes round.
    aged_share: float = 0.125

    def __post_init__(self) -> None:
        if self.max_requests < 1 or self.max_tokens < 1:
            raise ValueError(
                f"max_requests ({self.max_requests}) and max_tokens ({self.max_tokens}) must be at least 1."
            )
        if not 0 < self.ageing_seconds < math.inf:
            raise ValueError(f"ageing_seconds must be a number above 0, got {self.ageing_seconds}.")
        if not 0 < self.aged_share <= 1:
            raise ValueError(f"aged_share must be above 0 and at most 1, got {self.aged_share}.")


# Whether a request of this class and tenant could be placed now.
Room = Callable[[ServiceClass, str], bool]


class QueueRefusal(PenstockError):  # noqa: N818 - a decision, not a fault
    """The request is not queued; try again after `retry_after` seconds."""

    def __init__(
        self, message: str, *, reason: Reason, retry_after: float, status: Literal[429, 503]
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after
        self.status = status
