"""What tokens cost on a machine that is paid by the hour. Pure; any currency."""

from __future__ import annotations

SECONDS_PER_HOUR = 3600
MILLION = 1_000_000


def per_million(price_per_hour: float, tokens_per_second: float) -> float | None:
    """The price of a million tokens made at this rate; None where none were made."""
    if tokens_per_second <= 0:
        return None
    return price_per_hour / SECONDS_PER_HOUR / tokens_per_second * MILLION
