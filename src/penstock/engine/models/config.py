"""The shape of a dense decoder, whichever file format it came from."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from penstock.engine.layers.rotary import RopeScaling
from penstock.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tied_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "context_length",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ModelError(f"The model's {name} is {value!r}; it must be a positive integer.")
        scaling = astuple(self.rope_scaling)[1:] if self.rope_scaling is not None else ()
        for value in (self.norm_eps, self.rope_theta, *scaling):
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ModelError(
                    f"The model has {value!r} for a norm or rope setting; it must be a positive number."
                )
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"The model has {self.num_heads} heads, not a multiple of its {self.num_kv_heads} KV heads."
            )
        if self.head_dim % 2:
            raise ModelError(
                f"The model's head size {self.head_dim} is odd; rotary embedding needs an even one."
            )

    def kv_bytes_per_token(self, itemsize: int) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * itemsize
