"""What a client or its tenant wants of the router: a certain tier, a quality, a bound on the cost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.aio.decision import PINNED_BY_HEADER, PINNED_BY_TENANT
from penstock.config import TenantConfig
from penstock.errors import InvalidRequestError
from penstock.gateway.accounts.price import DOLLAR
from penstock.protocol.decode import shown
from penstock.protocol.errors import HTTPError

TIER_HEADER: Final = "x-penstock-tier"
QUALITY_HEADER: Final = "x-penstock-quality"
COST_HEADER: Final = "x-penstock-max-cost"
_LONGEST: Final = 32  # characters of a number that anybody means
_DECIMAL: Final = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")


@dataclass(frozen=True, slots=True)
class Wish:
    target: float  # share of the expert's quality
    tier: str | None = None
    forced: str = ""  # by whom
    max_cost: int | None = None  # picodollars


def wish_of(
    headers: Mapping[bytes, bytes], tenant: TenantConfig, target: float, tiers: Sequence[str]
) -> Wish:
    """A tenant's tier is not a client's to change, and no client may spend more than its tenant allows."""
    given = headers.get(TIER_HEADER.encode())
    tier, forced = tenant.tier, PINNED_BY_TENANT if tenant.tier else ""
    if given is not None:
        name = given.decode("latin-1").strip()
        if name not in tiers:
            raise InvalidRequestError(
                f"{TIER_HEADER} must be one of {', '.join(tiers)}, got {shown(name)}.", param=TIER_HEADER
            )
        if tier is not None and tier != name:
            raise HTTPError(
                403,
                f"This key's requests are answered by the tier {tier}; {TIER_HEADER} cannot name another.",
                code="tier_not_allowed",
                param=TIER_HEADER,
            )
        tier, forced = name, forced or PINNED_BY_HEADER
    quality = _number(headers, QUALITY_HEADER, 1.0)
    cost = _number(headers, COST_HEADER, 1e6)
    caps = [cap for cap in (tenant.max_cost, cost) if cap is not None]
    return Wish(
        target=next(each for each in (quality, tenant.quality_target, target) if each is not None),
        tier=tier,
        forced=forced,
        max_cost=int(min(caps) * DOLLAR) if caps else None,
    )


def _number(headers: Mapping[bytes, bytes], name: str, most: float) -> float | None:
    given = headers.get(name.encode())
    if given is None:
        return None
    text = given.decode("latin-1").strip()
    if len(text) <= _LONGEST and _DECIMAL.fullmatch(text) and (value := float(text)) <= most:
        return value
    raise InvalidRequestError(
        f"{name} must be one plain decimal number from 0 to {most:.0f}, such as 0.5, got {shown(text)}.",
        param=name,
    )
