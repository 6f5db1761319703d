"""The shape of an encoder, whichever file format it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.engine.kernels.activation import Activation
from penstock.errors import ModelError

# What a classifier's number goes through before it is a score.
ScoreActivation = Literal["sigmoid", "identity"]


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
        if self.hidden_size % self.num_heads:
            raise ModelError(
                f"The model's hidden size {self.hidden_size} is not a multiple of its {self.num_heads} heads."
            )
        if self.context_length < 1:
            raise ModelError(
                f"The model's {self.positions} positions are none, counted from {self.first_position} on."
            )
