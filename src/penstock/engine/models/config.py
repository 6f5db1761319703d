"""The shape of a decoder, whichever file it was described in, and every switch that architectures set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.engine.kernels.activation import Activation
from penstock.engine.layers.rotary import Rope
from penstock.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """What may differ from layer to layer."""

    rope: Rope | None  # None: positions are not marked
    window: int | None = None  # positions a token sees, its own included; None: all up to its own
    experts: bool = False  # a mixture of experts in place of the MLP


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsConfig:
    count: int
    per_token: int
    intermediate_size: int
    normalized: bool  # the shares of a token's experts are made to add up to one


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int  # tokens the model is offered with
    longest_context: int  # tokens that may be asked for: more, where rope scaling stretches the context
    norm_eps: float
    layers: tuple[LayerConfig, ...]
    attention_scale: float  # attention scores are multiplied by it
    tied_embeddings: bool = False
    has_head: bool = True  # False: there is no output matrix, only hidden states
    qkv_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    activation: Activation = "silu"
    # Where a layer's norms stand: before attention and MLP, after them, or both.
    norms: Literal["before", "after", "around"] = "before"
    norm_weights_from_one: bool = False  # stored as their difference from one
    query_key_norm: Literal["head", "projection"] | None = None  # each head, or all of them as one vector
    attention_softcap: float | None = None
    logits_softcap: float | None = None
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0  # of what attention and MLP add
    logits_divisor: float = 1.0
    experts: ExpertsConfig | None = None

    def __post_init__(self) -> None:
        problems = list(self._contradictions())
        if problems:
            raise ModelError(f"The model's description contradicts itself: {'; '.join(problems)}.")

    def _contradictions(self) -> list[str]:
        found = []
        if self.num_heads % self.num_kv_heads:
            found.append(f"{self.num_heads} heads are not a multiple of {self.num_kv_heads} KV heads")
        for rope in {layer.rope for layer in self.layers} - {None}:
            assert rope is not None
            if rope.dim % 2 or not 2 <= rope.dim <= self.head_dim:
                found.append(
                    f"rotary embedding of {rope.dim} dimensions does not fit a head of {self.head_dim}: it "
                    "needs an even number, at most the head's"
                )
            found += [
                f"there are {len(factors)} rope factors for {rope.dim // 2} rotary frequencies"
                for factors in (rope.short_factors, rope.long_factors)
                if factors and len(factors) != rope.dim // 2
            ]
            if rope.kind == "dynamic" and rope.dim < 4:
                found.append(f"dynamic rope scaling needs more than {rope.dim} dimensions")
        if self.experts is not None and self.experts.per_token > self.experts.count:
            found.append(f"{self.experts.per_token} experts for each token, but only {self.experts.count}")
        return found

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def windows(self) -> frozenset[int | None]:
        """All windows that layers have."""
        return frozenset(layer.window for layer in self.layers)

    def kv_bytes_per_token(self, itemsize: int) -> int:
        """In all layers; those with a window keep the keys and values before it too."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * itemsize
