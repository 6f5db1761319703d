"""The shape of an encoder, whichever file format it came from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from penstock.errors import ModelError

Activation = Literal["gelu", "gelu_tanh", "relu"]
# What a classifier's number goes through before it is a score.
ScoreActivation = Literal["sigmoid", "identity"]

_COUNTS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "positions",
    "context_length", "segments",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    positions: int  # rows of the position table
    context_length: int  # tokens: what the position table has room for
    segments: int  # kinds of token: a pair's first and second text
    norm_eps: float
    first_position: int = 0  # row of the first token; RoBERTa leaves the rows up to its padding's unused
    activation: Activation = "gelu"
    scores: bool = False  # whether a classifier head gives a score for a pair
    score_activation: ScoreActivation = "sigmoid"

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ModelError(f"The model's {name} is {value!r}; it must be a positive integer.")
        if not isinstance(self.norm_eps, int | float) or not 0 < self.norm_eps < math.inf:
            raise ModelError(f"The model's norm_eps is {self.norm_eps!r}; it must be a positive number.")
        if self.hidden_size % self.num_heads:
            raise ModelError(
                f"The model's hidden size {self.hidden_size} is not a multiple of its {self.num_heads} heads."
            )
        if self.first_position + self.context_length > self.positions:
            raise ModelError(
                f"The model's context of {self.context_length} tokens from position {self.first_position} on "
                f"does not fit its {self.positions} positions."
            )
