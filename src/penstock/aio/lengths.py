"""How long an answer will be, at each tier. Pure; tokens throughout.

Easy questions go to the lower tiers, so tiers' mean lengths cannot be compared: the expert would seem wordy
because it gets the hard ones, and savings would be overstated. Tiers are therefore compared on pairs alone,
answers of both to the same request (the monitor makes them); until there are pairs, all are equally long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.aio.books import Account, RouteTally

PRIOR_TOKENS: Final = 256.0  # of an answer, before any was seen
PRIOR_ANSWERS: Final = 20.0  # how many answers, or pairs of them, the prior is worth
MEMORY: Final = 2000.0  # answers; older ones fade
MOST_KEYS: Final = 256  # of regions


@dataclass(slots=True)
class _Mean:
    total: float = 0.0
    count: float = 0.0

    def add(self, value: float) -> None:
        self.fade(MEMORY - 1)
        self.total += value
        self.count += 1

    def fade(self, most: float) -> None:
        """Count for no more than so many."""
        if self.count > most:
            self.total *= most / self.count
            self.count = most

    def shrunk(self, prior: float) -> float:
        return (self.total + prior * PRIOR_ANSWERS) / (self.count + PRIOR_ANSWERS)


class OutputLengths:
    """Expected output tokens: a length for the kind of query, times how wordy the tier is."""

    def __init__(self) -> None:
        self._all = _Mean()
        self._regions: dict[str, _Mean] = {}
        self._pairs: dict[str, tuple[float, float]] = {}  # tier: its own tokens, the expert's

    def recall(self, tallies: Mapping[Account, RouteTally]) -> None:
        """What the books still know of earlier days: a mean over all regions, and the pairs."""
        for (_, _, tier), tally in tallies.items():
            self.pair(tier, tally.paired_tokens, tally.paired_expert_tokens)
        for (_, _, tier), tally in tallies.items():
            self._all.total += tally.output_tokens / self.ratio(tier)
            self._all.count += tally.requests
        self._all.fade(MEMORY)

    def add(self, tier: str, region: str, tokens: int) -> None:
        """An answer that came to its end."""
        plain = tokens / self.ratio(tier)
        self._all.add(plain)
        if region in self._regions or len(self._regions) < MOST_KEYS:
            self._regions.setdefault(region, _Mean()).add(plain)

    def pair(self, tier: str, tokens: int, expert_tokens: int) -> None:
        """A tier's answer and the expert's to the same request."""
        own, expert = self._pairs.get(tier, (0.0, 0.0))
        self._pairs[tier] = (own + tokens, expert + expert_tokens)

    def ratio(self, tier: str) -> float:
        """A tier's length over the expert's; 1 where nothing is known."""
        own, expert = self._pairs.get(tier, (0.0, 0.0))
        prior = PRIOR_TOKENS * PRIOR_ANSWERS
        return (own + prior) / (expert + prior)

    def expected(self, tier: str, region: str, most: int | None = None) -> int:
        """Tokens of an answer, at least one; `most` is what the request allows."""
        of_all = self._all.shrunk(PRIOR_TOKENS)
        mean = self._regions.get(region)
        length = (of_all if mean is None else mean.shrunk(of_all)) * self.ratio(tier)
        tokens = max(1, round(length))
        return tokens if most is None else min(tokens, max(1, most))

    def usual(self, tier: str, region: str) -> int | None:
        """Tokens that such answers have had; None until enough of them were seen to say what is unusual."""
        mean = self._regions.get(region)
        if mean is None or mean.count < PRIOR_ANSWERS:
            return None
        return max(1, round(mean.total / mean.count * self.ratio(tier)))
