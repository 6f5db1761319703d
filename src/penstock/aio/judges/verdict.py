"""What a judge says of two answers to one question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Outcome = Literal["same", "expert_better", "low_better", "unclear"]
# Texts to vectors of length one, a row for each.
Embed = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`score` is the probability that the low tier's answer is as good as the expert's, or better."""

    score: float
    outcome: Outcome
    judge: str
    kind: str

    @property
    def counts(self) -> bool:
        """Whether it says anything of the low tier's quality."""
        return self.outcome != "unclear"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one question."""

    question: str
    low: str
    expert: str
