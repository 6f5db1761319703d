"""Which class a request is served in: its tenant's, or a lower one that it asks for.

A tenant's class is the best its requests can have. `service_tier` is a wish, which clients send as
a matter of course: one that goes too far is lowered. The
header is an order to this server: one that goes too far is refused.
"""

from __future__ import annotations

from penstock.errors import InvalidRequestError
from penstock.gateway.queue.ticket import LEVELS, ServiceClass
from penstock.protocol.errors import HTTPError

CLASS_HEADER = "x-penstock-class"
# OpenAI's names of tiers; `auto` is whatever the tenant has.
TIERS: dict[str, ServiceClass | None] = {
    "auto": None,
    "default": "standard",
    "flex": "batch",
    "priority": "interactive",
}
_SHOWN = 40  # characters of a senseless value that an error repeats


def choose_class(
    own: ServiceClass, *, service_tier: str | None = None, header: str | None = None
) -> ServiceClass:
    """The class of a request of a tenant whose class is `own`; the header decides over the body."""
    wish = _from_tier(service_tier)
    if header is not None:
        return _from_header(header, own)
    return wish if wish is not None and LEVELS[wish] > LEVELS[own] else own


def _from_tier(tier: str | None) -> ServiceClass | None:
    if tier is None:
        return None
    try:
        return TIERS[tier]
    except KeyError:
        known = ", ".join(TIERS)
        raise InvalidRequestError(
            f"service_tier must be one of {known}, got {_shown(tier)}.", param="service_tier"
        ) from None


def _from_header(value: str, own: ServiceClass) -> ServiceClass:
    name = value.strip().lower()
    for known in LEVELS:
        if name == known:
            if LEVELS[known] < LEVELS[own]:
                raise HTTPError(
                    403,
                    f"The class {known} is not open to this key: its tenant's best is {own}. "
                    f"Leave {CLASS_HEADER} out, or name {own} or a class below.",
                    code="class_not_allowed",
                )
            return known
    raise InvalidRequestError(
        f"{CLASS_HEADER} must be one of {', '.join(LEVELS)}, got {_shown(value)}.", param=CLASS_HEADER
    )


def _shown(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
