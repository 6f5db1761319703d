"""The record of one routed request: what was weighed, what was chosen, what came of it.

Headers, metrics, books, the decision log, `route explain` and `route replay` all read this. Money is in whole
picodollars (1e-12 US dollars), times are Unix seconds. A record is made when the tier is chosen, and
completed when the answer has ended.
"""

from __future__ import annotations

from typing import Final

import msgspec

PINNED_BY_HEADER: Final = "pinned by header"
PINNED_BY_TENANT: Final = "pinned by tenant"
PROMOTED: Final = "promoted"  # the monitor has closed the chosen tier to this region
COST_CAP: Final = "cost cap"  # a dearer tier was wanted
PINNED: Final = frozenset({PINNED_BY_HEADER, PINNED_BY_TENANT})  # a choice that was not the router's


class Price(msgspec.Struct, frozen=True):
    """Picodollars for a token of the prompt, one of it that was cached, one of the answer, and a request."""

    input: int = 0
    cached_input: int = 0
    output: int = 0
    request: int = 0

    def cost(self, prompt: int, cached: int, output: int) -> int:
        """In picodollars. `cached` tokens are part of the prompt."""
        return (
            (prompt - cached) * self.input + cached * self.cached_input + output * self.output + self.request
        )


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tier as it looked for this request."""

    tier: str
    reference: str  # the measured model it is like
    quality: float  # probability that its answer is good enough
    deviation: float = 0.0  # of that estimate
    price: Price = Price()
    output_tokens: int = 0  # expected
    cost: int = 0  # expected, picodollars
    able: bool = True
    why_not: str = ""  # a sentence where it is not able
    barred: bool = False  # by policy or price, which no direction of passing over leads around


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer that was paid for and not delivered: the second look discarded it, or compared with it."""

    tier: str
    cost: int  # picodollars
    output_tokens: int = 0
    why: str = ""
    sample: bool = False  # it was asked for only to compare another one with


class PassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """A tier that was chosen, or next in line, and could not answer."""

    tier: str
    why: str


class Decision(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One routed request. `candidates` is the whole ladder, cheapest first; its last one is the expert."""

    request: str  # its id
    at: float
    tenant: str
    region: str
    model_version: str  # of the predictor
    target: float  # share of the expert's quality
    rate: float = 0.0  # what the target became: quality to be gained by spending what the expert costs
    candidates: list[Candidate]
    chosen: str  # tier
    forced: str = ""  # why the choice was not free
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt
    most_output_tokens: int = 0  # that the request allows; 0: not known
    classifier_seconds: float = 0.0  # of one CPU
    vector: bytes | None = None  # what the heads saw: float32, little endian
    text: str | None = None  # what was asked; only where the tenant allows it to be kept

    # Known when the answer has ended.
    answered: str = ""  # tier; empty if nobody answered
    outcome: str = ""  # ok, aborted, failed or refused
    output_tokens: int = 0
    cost: int = 0  # of what was delivered
    latency_seconds: float = 0.0
    cascade: list[Attempt] = []  # a struct copies it
    passed_over: list[PassedOver] = []

    def candidate(self, tier: str) -> Candidate | None:
        return next((found for found in self.candidates if found.tier == tier), None)

    @property
    def reason(self) -> str:
        """Why the tier was chosen, in one word or two."""
        return "pinned" if self.pinned else self.forced or "quality"

    @property
    def pinned(self) -> bool:
        """Whether somebody else than the router chose."""
        return self.forced in PINNED
