"""Money, exactly: whole picodollars (1e-12 US dollars), never floats."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.config import PriceConfig

DOLLAR: Final = 10**12  # picodollars
_PER_TOKEN: Final = Decimal(10**6)  # picodollars a token, for one dollar a million tokens
MOST_PRICE: Final = 10**6  # dollars; more is a mistake, and its sums would outgrow the ledger's integers
MOST_BUDGET: Final = 10**12  # dollars
MOST_TOKENS: Final = 10**12  # of one request; whoever reports more has lost count


@dataclass(frozen=True, slots=True)
class Price:
    """Picodollars for a token of the prompt, one of it that was cached, one of the answer, and a request."""

    input: int = 0
    cached_input: int = 0
    output: int = 0
    request: int = 0

    @classmethod
    def of(cls, config: PriceConfig | None) -> Price:
        if config is None:
            return FREE
        cached = config.input if config.cached_input is None else config.cached_input
        return cls(
            _picodollars(config.input, "price.input", _PER_TOKEN, MOST_PRICE),
            _picodollars(cached, "price.cached_input", _PER_TOKEN, MOST_PRICE),
            _picodollars(config.output, "price.output", _PER_TOKEN, MOST_PRICE),
            _picodollars(config.request, "price.request", Decimal(DOLLAR), MOST_PRICE),
        )

    def cost(self, prompt: int, cached: int, completion: int) -> int:
        """What an answer costs, in picodollars. `cached` tokens are part of the prompt."""
        return (
            (prompt - cached) * self.input
            + cached * self.cached_input
            + completion * self.output
            + self.request
        )

    def most(self, prompt: int, completion: int) -> int:
        """What a request of this size can cost, whatever is cached of it."""
        return prompt * max(self.input, self.cached_input) + completion * self.output + self.request


FREE: Final = Price()


def countable(tokens: int) -> int:
    """A count from anywhere, made fit for sums."""
    return min(max(tokens, 0), MOST_TOKENS)


def budget(dollars: float) -> int:
    """A budget in picodollars."""
    return _picodollars(dollars, "monthly_budget", Decimal(DOLLAR), MOST_BUDGET)


def _picodollars(value: float, name: str, scale: Decimal, most: int) -> int:
    """The nearest whole number. NaN would pass every comparison, so it is refused here once more."""
    try:
        dollars = Decimal(str(value))
    except InvalidOperation:
        dollars = Decimal("NaN")
    if not dollars.is_finite() or not 0 <= dollars <= most:
        raise ConfigError(f"{name} must be an amount of US dollars from 0 to {most:,}, got {value!r}.")
    return round(dollars * scale)


def shown(picodollars: int) -> str:
    """As people write it: `$0.25`, `$0.000012`."""
    whole, rest = divmod(picodollars, DOLLAR)
    return f"${whole:,}.{f'{rest:012d}'.rstrip('0'):0<2}"
