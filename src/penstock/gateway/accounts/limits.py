"""Whether a request is within its tenant's limits: pure, and the same wherever the state is kept.

Times are microseconds of a monotonic clock. A bucket is a debt that runs off: a request, or a token, adds
`UNIT` to it, each microsecond takes away as many as the limit allows in a minute, and a full minute's worth
is the most it may hold. All numbers are whole, so nothing is ever gained or lost by rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import ConfigError
from penstock.gateway.accounts import price

if TYPE_CHECKING:
    from penstock.config import TenantConfig

UNIT: Final = 60_000_000  # microseconds in a minute
SECOND: Final = 1_000_000
_BACKWARDS: Final = 10 * SECOND  # more than any worker can lag behind: another clock
_LASTING_SHARE: Final = 8  # the newest request counts for 1/8 in how long a request lasts


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one tenant; None is no limit. The budget is in picodollars."""

    requests: int | None = None  # a minute
    tokens: int | None = None  # a minute
    concurrent: int | None = None
    budget: int | None = None  # a month

    @classmethod
    def of(cls, tenant: TenantConfig) -> Limits:
        return cls(
            _count(tenant, "requests_per_minute"),
            _count(tenant, "tokens_per_minute"),
            _count(tenant, "concurrent"),
            None if tenant.monthly_budget is None else price.budget(tenant.monthly_budget),
        )

    @property
    def none(self) -> bool:
        return self.requests is self.tokens is self.concurrent is self.budget is None

    def part(self, parts: int) -> Limits:
        """One of so many equal parts, and at least one request: nobody is shut out by division."""
        return Limits(
            None if self.requests is None else max(self.requests // parts, min(1, self.requests)),
            None if self.tokens is None else self.tokens // parts,
            None if self.concurrent is None else max(self.concurrent // parts, min(1, self.concurrent)),
            None if self.budget is None else self.budget // parts,
        )


def _count(tenant: TenantConfig, name: str) -> int | None:
    value: Any = getattr(tenant, name)
    if value is None or (type(value) is int and value >= 0):
        return value
    raise ConfigError(
        f"{name} of tenant {tenant.name!r} must be a whole number of at least 0, got {value!r}."
    )


class Share(msgspec.Struct, array_like=True):
    """What one worker has under way."""

    running: int = 0
    held: int = 0  # picodollars


class Standing(msgspec.Struct, array_like=True):
    """Where one tenant stands."""

    at: int = 0  # when the debts were last brought up to date
    requests: int = 0  # debt
    tokens: int = 0  # debt
    lasting: int = SECOND  # how long its requests take, about
    month: str = ""  # YYYY-MM that `spent` is about; empty while there is no budget
    spent: int = 0  # picodollars, settled
    shares: dict[str, Share] = msgspec.field(default_factory=dict)  # by worker

    @property
    def running(self) -> int:
        return sum(share.running for share in self.shares.values())

    @property
    def held(self) -> int:
        return sum(share.held for share in self.shares.values())


class Refusal(msgspec.Struct, frozen=True):
    """Why a request may not pass. `wait` is in microseconds; None: it never will."""

    code: str
    message: str
    wait: int | None

    @property
    def may_be_stale(self) -> bool:
        """Whether what a dead worker left behind may be the reason."""
        return self.code in (CONCURRENCY, QUOTA)


RATE: Final = "rate_limit_exceeded"
TOKENS: Final = "tokens_limit_exceeded"
CONCURRENCY: Final = "concurrency_limit_exceeded"
QUOTA: Final = "insufficient_quota"


def drain(standing: Standing, limits: Limits, at: int) -> None:
    """Let the time since the last look run off the debts."""
    elapsed = at - standing.at
    if elapsed > 0:
        standing.at = at
        if standing.requests:
            standing.requests = (
                max(0, standing.requests - elapsed * limits.requests) if limits.requests else 0
            )
        if standing.tokens:
            standing.tokens = max(0, standing.tokens - elapsed * limits.tokens) if limits.tokens else 0
    elif elapsed < -_BACKWARDS:
        standing.at = at


def refusal(
    standing: Standing, limits: Limits, tokens: int, cost: int, month_left: Callable[[], int]
) -> Refusal | None:
    """The reason against a request of so many tokens and picodollars, the most lasting one first."""
    if (why := over_budget(standing, limits, cost, cost, month_left)) is not None:
        return why
    if (why := over_tokens(standing, limits, tokens, tokens)) is not None:
        return why
    if limits.requests is not None and standing.requests + UNIT > limits.requests * UNIT:
        wait = _run_off(standing.requests + UNIT, limits.requests)
        return Refusal(RATE, f"The limit is {limits.requests:,} requests a minute", wait)
    if limits.concurrent is not None and standing.running >= limits.concurrent:
        message = f"The limit is {limits.concurrent:,} requests at a time, and so many are under way"
        return Refusal(CONCURRENCY, message, standing.lasting // max(1, limits.concurrent))
    return None


def over_budget(
    standing: Standing, limits: Limits, cost: int, more: int, month_left: Callable[[], int]
) -> Refusal | None:
    """The reason against holding `more` picodollars for a request that may then cost `cost`.

    What costs nothing more is never refused, whatever has been spent.
    """
    budget = limits.budget
    if budget is None or more <= 0 or more <= budget - standing.spent - standing.held:
        return None
    about = f"The budget is {price.shown(budget)} a month, {price.shown(standing.spent)} of it spent"
    if cost > budget:
        return Refusal(QUOTA, f"{about}, and this request may cost {price.shown(cost)}", None)
    if standing.spent + cost <= budget:
        # Only what is under way stands against it, and may turn out cheaper.
        held = f"and {price.shown(standing.held)} held by requests under way"
        return Refusal(QUOTA, f"{about} {held}, and this one may cost {price.shown(cost)}", standing.lasting)
    return Refusal(QUOTA, f"{about}, and this request may cost {price.shown(cost)}", month_left())


def over_tokens(standing: Standing, limits: Limits, tokens: int, more: int) -> Refusal | None:
    """The reason against `more` tokens for a request that may then take `tokens`."""
    limit = limits.tokens
    if limit is None or standing.tokens + more * UNIT <= limit * UNIT:
        return None
    message = f"The limit is {limit:,} tokens a minute, and this request may take {tokens:,}"
    wait = None if tokens > limit else _run_off(standing.tokens + more * UNIT, limit)
    return Refusal(TOKENS, message, wait)


def _run_off(debt: int, limit: int) -> int | None:
    """Microseconds until a debt is down to what a bucket may hold."""
    return -((limit * UNIT - debt) // limit) if limit else None


def take(standing: Standing, limits: Limits, worker: str, tokens: int, cost: int) -> None:
    """What `refusal` had nothing against."""
    if limits.requests is not None:
        standing.requests += UNIT
    if limits.tokens is not None:
        standing.tokens += tokens * UNIT
    share = standing.shares.get(worker)
    if share is None:
        share = standing.shares[worker] = Share()
    share.running += 1
    if limits.budget is not None:
        share.held += cost


def correct_tokens(standing: Standing, limits: Limits, tokens: int) -> None:
    """So many tokens more, or fewer, than was thought."""
    if limits.tokens is not None:
        standing.tokens = max(0, standing.tokens + tokens * UNIT)


def hold_cost(standing: Standing, worker: str, more: int) -> None:
    """A request under way may cost so many picodollars more, or fewer, than was held for it."""
    share = standing.shares.get(worker)
    if share is not None:
        share.held = max(0, share.held + more)


def release(standing: Standing, worker: str, running: int, held: int) -> None:
    """A worker's requests are over. One that was taken for dead has no share any more."""
    share = standing.shares.get(worker)
    if share is None:
        return
    if share.running <= running:
        del standing.shares[worker]
    else:
        share.running -= running
        share.held = max(0, share.held - held)


def lasted(standing: Standing, microseconds: int) -> None:
    standing.lasting += (max(0, microseconds) - standing.lasting) // _LASTING_SHARE
