"""How long an answer will be, at each tier. Pure; tokens throughout.

Easy questions go to the lower tiers, so tiers' mean lengths cannot be compared: the expert would seem wordy
because it gets the hard ones, and savings would be overstated. Tiers are therefore compared on pairs alone,
answers of both to the same request (the monitor makes them); until there are pairs, all are equally long.

Means are of logarithms, and every length is bounded: what one caller or one server says moves them little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.aio.books import Account, RouteTally

PRIOR_TOKENS: Final = 256.0  # of an answer, before any was seen
PRIOR_ANSWERS: Final = 20.0  # how many answers, or pairs of them, the prior is worth
MEMORY: Final = 2000.0  # answers; older ones fade
RECALLED: Final = 100.0  # answers that a tenant's day in the books counts for at most
MOST_KEYS: Final = 256  # of regions
MOST_TOKENS: Final = 8192  # that an answer counts for; longer ones are rare, or nobody has counted them
USEFUL_TOKENS: Final = 256  # an answer that may be as long as this is worth having, whatever was expected
_MOST_RATIO: Final = 8.0  # of the lengths of two answers to the same request


@dataclass(slots=True)
class _Mean:
    """Of logarithms."""

    total: float = 0.0
    count: float = 0.0

    def add(self, value: float, times: float = 1.0) -> None:
        self.fade(MEMORY - times)
        self.total += math.log(value) * times
        self.count += times

    def fade(self, most: float) -> None:
        """Count for no more than so many."""
        if self.count > most:
            self.total *= most / self.count
            self.count = most

    def shrunk(self, prior: float) -> float:
        return math.exp((self.total + math.log(prior) * PRIOR_ANSWERS) / (self.count + PRIOR_ANSWERS))


class OutputLengths:
    """Expected output tokens: a length for the kind of query, times how wordy the tier is."""

    def __init__(self) -> None:
        self._all = _Mean()
        self._regions: dict[str, _Mean] = {}
        self._pairs: dict[str, _Mean] = {}  # by tier: its own tokens over the expert's

    def recall(self, tallies: Mapping[Account, RouteTally]) -> None:
        """What the books still know of earlier days: a mean over all regions, and the pairs. A tenant's day
        counts for some answers only, for its sum may be that of one."""
        for (_, _, tier), tally in tallies.items():
            if checks := tally.as_good + tally.worse + tally.unclear:
                own, expert = tally.paired_tokens / checks, tally.paired_expert_tokens / checks
                self.pair(tier, own, expert, min(checks, RECALLED))
        for (_, _, tier), tally in tallies.items():
            if tally.requests:
                mean = tally.output_tokens / tally.requests
                self._all.add(_bounded(mean) / self.ratio(tier), min(tally.requests, RECALLED))

    def add(self, tier: str, region: str, tokens: int, most: int | None = None) -> None:
        """An answer that came to its end; `most` is what its request allowed."""
        plain = _bounded(tokens if most is None else min(tokens, most)) / self.ratio(tier)
        self._all.add(plain)
        if region in self._regions or len(self._regions) < MOST_KEYS:
            self._regions.setdefault(region, _Mean()).add(plain)

    def pair(self, tier: str, tokens: float, expert_tokens: float, times: float = 1.0) -> None:
        """A tier's answer and the expert's to the same request, or the means of several such pairs."""
        if not (tokens and expert_tokens):
            return
        ratio = min(max(_bounded(tokens) / _bounded(expert_tokens), 1 / _MOST_RATIO), _MOST_RATIO)
        self._pairs.setdefault(tier, _Mean()).add(ratio, times)

    def ratio(self, tier: str) -> float:
        """A tier's length over the expert's; 1 where nothing is known."""
        mean = self._pairs.get(tier)
        return 1.0 if mean is None else mean.shrunk(1.0)

    def expected(self, tier: str, region: str, most: int | None = None) -> int:
        """Tokens of an answer, at least one; `most` is what the request allows."""
        of_all = self._all.shrunk(PRIOR_TOKENS)
        mean = self._regions.get(region)
        length = (of_all if mean is None else mean.shrunk(of_all)) * self.ratio(tier)
        tokens = round(_bounded(length))
        return tokens if most is None else min(tokens, max(1, most))

    def usual(self, tier: str, region: str) -> int | None:
        """Tokens that such answers have had; None until enough of them were seen to say what is unusual."""
        mean = self._regions.get(region)
        if mean is None or mean.count < PRIOR_ANSWERS:
            return None
        return round(_bounded(math.exp(mean.total / mean.count) * self.ratio(tier)))


def _bounded(tokens: float) -> float:
    return min(max(tokens, 1.0), MOST_TOKENS)
