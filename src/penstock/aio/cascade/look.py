"""The second look: signals of an answer become one confidence, and a confidence a decision.

confidence = sigmoid(PRIOR + the weights of what was found + how sure the model was + how its samples agree)

Each term is in log-odds of a good answer. Log-probabilities are known of engines of ours alone: a server
behind the gateway is asked for what its client asked for, so there the confidence rests on the other signals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from penstock.aio.cascade.checks import WEIGHTS, findings
from penstock.aio.cascade.heard import Heard
from penstock.aio.cascade.wants import Wants

# An answer that nothing speaks against: the router has chosen the tier because it should do.
PRIOR: Final = math.log(0.8 / 0.2)
# Measured on 140 short greedy answers of SmolLM2-135M (sums, capitals, facts; 44% right): the mean
# log-probability of an answer's tokens tells right from wrong with an AUC of 0.92, the lowest with 0.88, and
# adds nothing to the mean. The fitted slope is 9 per nat around -0.4. It is taken at less than half of that,
# as long or sampled answers are less probable by nature: at a threshold of 0.5 it turns down 13% of them,
# none of which was right. The lowest counts only where it is beyond what nine of ten answers had.
MEAN_WEIGHT: Final = 4.0
MEAN_USUAL: Final = -0.4  # nats
LOWEST_WEIGHT: Final = 0.2
LOWEST_USUAL: Final = -2.0  # nats
MOST: Final = 3.0  # either way: no model's own opinion outweighs an answer that is plainly of no use
# The same, each with two samples at temperature 0.7, as far as answers could be compared: right 64% of the
# time where both came to the same (11 answers), 16% where neither did (69): 2.2 apart in log-odds.
AGREEMENT: Final = 1.1
LOWEST: Final = -20.0  # nats; a token that was not to be expected at all must not drown all others
SURE: Final = "the model was not sure"
AGREED: Final = "further samples disagree"


@dataclass(frozen=True, slots=True)
class Look:
    accept: bool
    confidence: float  # 0 to 1
    reasons: tuple[str, ...]  # what speaks against the answer, the weightiest first


class TokenScores:
    """Natural-log probabilities of an answer's tokens as they come: kept as sums, so of any length.

    It is what an exchange calls its watch.
    """

    __slots__ = ("_first", "_first_sum", "_sum", "count", "lowest")

    def __init__(self, first: int = 0) -> None:
        self._first = first  # so many tokens are also averaged apart; 0: all of them
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.lowest = 0.0
        self._sum = 0.0
        self._first_sum = 0.0

    def token(self, logprob: float) -> None:
        logprob = max(logprob, LOWEST)
        self.count += 1
        self._sum += logprob
        self.lowest = min(self.lowest, logprob)
        if self.count <= self._first:
            self._first_sum += logprob

    @property
    def mean(self) -> float:
        return self._sum / self.count if self.count else 0.0

    @property
    def mean_of_first(self) -> float:
        """An answer goes wrong early, and what follows from the mistake is sure of itself."""
        counted = min(self.count, self._first)
        return self._first_sum / counted if counted else self.mean


def look_at(
    wants: Wants,
    heard: Heard,
    scores: TokenScores,
    *,
    tokens: int,
    threshold: float,
    agreed: float | None = None,
    usual: float | None = None,
) -> Look:
    """Whether an answer, or the beginning of one, may go out. `tokens`: of it so far; `usual`: what such an
    answer has in all; `agreed`: the share of further samples that come to the same."""
    terms = {name: WEIGHTS[name] for name in findings(wants, heard, tokens, usual)}
    if scores.count:
        terms[SURE] = sureness(scores)
    if agreed is not None:
        terms[AGREED] = AGREEMENT * (2 * agreed - 1)
    confidence = 1 / (1 + math.exp(-(PRIOR + sum(terms.values()))))
    against = sorted((weight, name) for name, weight in terms.items() if weight < 0)
    return Look(confidence >= threshold, confidence, tuple(name for _, name in against))


def sureness(scores: TokenScores) -> float:
    """Log-odds by how probable the model found its own words: of the doubtful part, all of it or its
    beginning, the mean; and the least of them, where a guess shows."""
    mean = min(scores.mean, scores.mean_of_first)
    guess = min(0.0, scores.lowest - LOWEST_USUAL)
    term = MEAN_WEIGHT * (mean - MEAN_USUAL) + LOWEST_WEIGHT * guess
    return max(-MOST, min(MOST, term))
