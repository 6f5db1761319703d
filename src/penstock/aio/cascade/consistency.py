"""Asking again and comparing: answers that a model gives alike are more often right.

Only answers that come to something, a number, a choice, JSON, yes or no, can be compared. Prose says the same
in other words; a judge that cannot tell says so, and then nothing is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.aio.judges import judge

TEMPERATURE: Final = 0.7  # of the further samples: at 0 they would all be the first one
DOUBT: Final = 0.2  # how near to the threshold a confidence must be for samples to be worth their cost

# How alike two answers to a question are, from 0 to 1; None: it cannot tell.
Same = Callable[[str, str, str], float | None]


def worth_sampling(confidence: float, threshold: float) -> bool:
    """Whether a few samples could change what is done: far from the threshold they hardly can."""
    return abs(confidence - threshold) <= DOUBT


def same_answer(question: str, answer: str, other: str) -> float | None:
    """As the judges of the quality monitor see it; of prose nothing is known without an embedding."""
    verdict = judge(question, answer, other)
    if verdict.kind == "prose" or not verdict.counts:
        return None
    return 1.0 if verdict.outcome == "same" else 0.0


def agreement(question: str, answer: str, samples: Sequence[str], same: Same = same_answer) -> float | None:
    """The share of the samples that agree with the answer; None if none can be compared."""
    compared = [alike for sample in samples if (alike := same(question, answer, sample)) is not None]
    return sum(compared) / len(compared) if compared else None
