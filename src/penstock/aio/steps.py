"""Tiers as the choice sees them, and the held-out queries on which their targets become rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from penstock.aio.choose import Ladder, Threshold, choices, choose, reached, shares
from penstock.aio.decision import COST_CAP, Candidate, Price
from penstock.aio.lengths import USEFUL_TOKENS, OutputLengths
from penstock.aio.predictor import Predictor, Rating
from penstock.errors import ConfigError
from penstock.protocol.estimate import USUAL_OUTPUT as USUAL_OUTPUT
from penstock.protocol.estimate import USUAL_PROMPT as USUAL_PROMPT

# Models that were asked the same thousands of questions: 4, 8 and 70 billion parameters, and a large one.
USUAL: Final = ("Phi-3-mini", "Llama-3.1-8B", "Llama-3.1-70B", "gemini-1.5-pro")
# An estimate of a prompt may be half of what its tokenizer makes of it; a cap on the cost reckons with that.
PROMPT_DOUBT: Final = 2
TOO_DEAR: Final = "it costs more than the request may"


@dataclass(frozen=True, slots=True)
class Step:
    """A tier: whom it is like, and what it costs."""

    tier: str
    reference: str
    price: Price
    why_not: str = ""  # a few words where it cannot be asked this


def example(references: Sequence[str]) -> list[Step]:
    """The four tiers of the product's promise: from lookups on a CPU to chains of thought on several GPUs."""
    tiers = {"simple": 0.0001, "medium": 0.0005, "complex": 0.003, "expert": 0.01}  # dollars a request
    return [
        Step(tier, reference_at(number, len(tiers), references), Price(request=round(dollars * 10**12)))
        for number, (tier, dollars) in enumerate(tiers.items())
    ]


def reference_at(number: int, steps: int, references: Sequence[str]) -> str:
    """Whom a step is like that does not say so: steps are spread over the usual ladder, from bottom to top,
    or over all references (cheapest first) of a predictor that does not know it."""
    ladder = USUAL if set(USUAL) <= set(references) else references
    return ladder[round(number * (len(ladder) - 1) / max(1, steps - 1))]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Queries that a predictor was not trained on, with a column for each step; costs of a usual request."""

    quality: NDArray[np.float32]
    ok: NDArray[np.float32]
    deviation: NDArray[np.float32] | None
    costs: list[float]

    def ladder(self, caution: float = 0.0) -> Ladder:
        return Ladder(self.quality, self.ok, self.costs, deviation=self.deviation, caution=caution)

    def at_rate(self, rate: float, caution: float = 0.0) -> Threshold:
        """The target that a rate stands for."""
        costs = np.array(shares(self.costs))
        taken = choices(self.quality, costs, rate, deviation=self.deviation, caution=caution)
        quality, cost = reached(taken, self.ok, costs)
        share = quality / float(np.nanmean(self.ok[:, -1]))
        return Threshold(share, rate, share, cost)


def unmeasured(step: Step, predictor: Predictor) -> str | None:
    """What is wrong with whom a tier is like, to follow its name; None: nothing."""
    known = predictor.sample.references
    if step.reference in known:
        return None
    return (
        f"is like {step.reference!r}, of which the predictor {predictor.name!r} has no held-out answers; "
        f"it must be like one of {', '.join(known)}"
    )


def held_out(steps: Sequence[Step], predictor: Predictor) -> HeldOut:
    sample = predictor.sample
    for step in steps:
        if (wrong := unmeasured(step, predictor)) is not None:
            raise ConfigError(f"The tier {step.tier!r} {wrong}.")
    columns = [sample.references.index(step.reference) for step in steps]
    return HeldOut(
        sample.quality[:, columns],
        sample.ok[:, columns],
        None if sample.deviation is None else sample.deviation[:, columns],
        [float(step.price.cost(USUAL_PROMPT, 0, USUAL_OUTPUT)) for step in steps],
    )


def weighed(
    steps: Sequence[Step],
    rating: Rating,
    prompt_tokens: int,
    *,
    lengths: OutputLengths | None = None,
    most_output: int | None = None,
    max_cost: int | None = None,
) -> list[Candidate]:
    """Every step as it looks for one query. `max_cost`: picodollars that the request may cost."""
    lengths = lengths or OutputLengths()
    candidates = []
    for step, quality, deviation in zip(steps, rating.quality, rating.deviation, strict=True):
        tokens = lengths.expected(step.tier, rating.region, most_output)
        candidate = Candidate(
            tier=step.tier,
            reference=step.reference,
            quality=quality,
            deviation=deviation,
            price=step.price,
            output_tokens=tokens,
            cost=step.price.cost(prompt_tokens, 0, tokens),
            able=not step.why_not,
            why_not=step.why_not,
        )
        candidates.append(capped(candidate, prompt_tokens, max_cost))
    return candidates


def capped(candidate: Candidate, prompt_tokens: int, max_cost: int | None) -> Candidate:
    """The candidate, barred if the cap does not pay a useful answer: a longer one would be cut."""
    output = min(candidate.output_tokens, USEFUL_TOKENS)
    most = candidate.price.cost(prompt_tokens * PROMPT_DOUBT, 0, output)
    if max_cost is None or most <= max_cost:
        return candidate
    return replace(candidate, able=False, barred=True, why_not=candidate.why_not or TOO_DEAR)


def take(candidates: Sequence[Candidate], rate: float, caution: float = 0.0) -> tuple[int | None, str]:
    """The step to take and, where a cap on the cost forbade another, that. None: no step may answer."""
    chosen = _best(candidates, rate, caution, [candidate.able for candidate in candidates])
    free = _best(candidates, rate, caution, [each.able or each.barred for each in candidates])
    return chosen, COST_CAP if chosen != free else ""


def _best(candidates: Sequence[Candidate], rate: float, caution: float, open_: Sequence[bool]) -> int | None:
    if not any(open_):
        return None
    return choose(
        [candidate.quality for candidate in candidates],
        [candidate.deviation for candidate in candidates],
        shares([float(candidate.cost) for candidate in candidates]),
        rate,
        caution=caution,
        open_=open_,
    )
