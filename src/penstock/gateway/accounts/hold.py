"""What a request may use, held for it from its admission until it is settled."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from penstock.gateway.accounts.limits import UNIT, Limits
from penstock.gateway.accounts.price import Price

Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Want:
    """What a request may use at most, at one model."""

    price: Price
    prompt: int  # tokens
    output: int  # tokens

    @property
    def tokens(self) -> int:
        return self.prompt + self.output

    @property
    def cost(self) -> int:
        """Picodollars."""
        return self.price.most(self.prompt, self.output)


class Hold:
    """One request's. Settled exactly once: what is dropped unsettled puts itself on the list of the lost."""

    __slots__ = (
        "_lost",
        "alone",
        "at",
        "cost",
        "day",
        "debts",
        "limits",
        "model",
        "output",
        "price",
        "prompt",
        "settled",
        "tenant",
    )

    def __init__(
        self,
        tenant: str,
        model: str,
        price: Price,
        limits: Limits,
        prompt: int,
        output: int,
        at: int,
        lost: deque[Hold],
    ) -> None:
        self.tenant = tenant
        self.model = model
        self.price = price
        self.limits = limits
        self.prompt = prompt  # tokens
        self.output = output  # tokens, at most
        self.cost = price.most(prompt, output)  # picodollars, at most
        self.at = at  # microseconds, monotonic
        self.day = ""  # YYYY-MM-DD; what is used is billed to the day it was admitted on
        self.debts = (0, 0)  # of requests and tokens, with this one's if it was admitted
        self.alone = False  # admitted by this worker's own part of the limits
        self.settled = True  # until it is granted there is nothing to settle
        self._lost = lost

    def __del__(self) -> None:
        if not self.settled:
            self._lost.append(self)

    @property
    def tokens(self) -> int:
        return self.prompt + self.output

    def take(self, wanted: Want) -> None:
        """Hold this in place of what was held before."""
        self.prompt, self.output, self.cost = wanted.prompt, wanted.output, wanted.cost

    def headers(self) -> list[Header]:
        """Where the tenant stands, in OpenAI's headers; only for limits there are."""
        fields: list[Header] = []
        for name, limit, debt in (
            (b"requests", self.limits.requests, self.debts[0]),
            (b"tokens", self.limits.tokens, self.debts[1]),
        ):
            if limit:
                remaining = max(0, limit - -(-debt // UNIT))
                fields += [
                    (b"x-ratelimit-limit-" + name, b"%d" % limit),
                    (b"x-ratelimit-remaining-" + name, b"%d" % remaining),
                    (b"x-ratelimit-reset-" + name, _duration(debt // limit)),
                ]
        return fields


def _duration(microseconds: int) -> bytes:
    """As OpenAI writes them: 17ms, 8.64s, 6m0s."""
    milliseconds = -(-microseconds // 1000)
    if milliseconds < 1000:
        return b"%dms" % milliseconds
    minutes, seconds = divmod(milliseconds / 1000, 60)
    return b"%dm%gs" % (minutes, round(seconds, 3)) if minutes else b"%gs" % round(seconds, 3)
