"""The one decoder: attention and a gated MLP, again and again, with the switches of its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from penstock.engine.kernels.attention import AttentionGroup, KVLayer, paged_attention, write_kv
from penstock.engine.kernels.linear import Linear
from penstock.engine.layers.experts import Experts
from penstock.engine.layers.mlp import GatedMLP
from penstock.engine.layers.norm import HeadNorm, Norm, ProjectionNorm
from penstock.engine.layers.rotary import Rotary, rotate
from penstock.engine.models.config import DecoderConfig


@dataclass(slots=True)
class StepInputs:
    """One step on the device: all granted tokens of all sequences, one after another."""

    tokens: Tensor  # [rows] token ids
    positions: Tensor  # [rows]
    places: Tensor  # [rows] where keys and values go: block * block size + offset
    groups: Mapping[int | None, Sequence[AttentionGroup]]  # for each window that layers have


@dataclass(slots=True, kw_only=True)
class DecoderLayer:
    qkv: Linear
    attention_output: Linear
    mlp: GatedMLP | Experts
    attention_norm: Norm | None = None
    attention_post_norm: Norm | None = None
    mlp_norm: Norm | None = None
    mlp_post_norm: Norm | None = None
    query_key_norm: HeadNorm | ProjectionNorm | None = None
    rotary: Rotary | None = None  # None: positions are not marked
    window: int | None = None  # which of the step's attention groups are this layer's


class Decoder:
    def __init__(
        self,
        config: DecoderConfig,
        embedding: Tensor,
        layers: list[DecoderLayer],
        final_norm: Norm,
        head: Linear | None,
        rotaries: list[Rotary],
    ) -> None:
        self.config = config
        self.embedding = embedding
        self.layers = layers
        self.final_norm = final_norm
        self.head = head
        self.rotaries = rotaries
        # Rounded to the precision of the embedding, as the models were trained.
        multiplier = torch.tensor(config.embedding_multiplier, dtype=embedding.dtype)
        self._embedding_multiplier = float(multiplier)

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def weight_bytes(self) -> int:
        """All matrices but the embedding, which is only looked up. A step reads them all, but for experts
        that none of its tokens chose."""
        layers = sum(
            m.nbytes for layer in self.layers for m in (layer.qkv, layer.attention_output, layer.mlp)
        )
        return layers + (0 if self.head is None else self.head.nbytes)

    def prepare(self, positions: int) -> None:
        """Make ready for sequences of up to so many tokens; needed before the first `forward`."""
        for rotary in self.rotaries:
            rotary.prepare(positions)

    @torch.inference_mode()
    def forward(self, inputs: StepInputs, cache: list[KVLayer]) -> Tensor:
        """The hidden states after the last layer, [rows, hidden size]; `logits` makes the most of them."""
        hidden = _scaled(self.embedding[inputs.tokens], self._embedding_multiplier)
        residual = self.config.residual_multiplier
        turns = {rotary: rotary.at(inputs.positions, hidden.dtype) for rotary in self.rotaries}
        for layer, kv in zip(self.layers, cache, strict=True):
            turn = None if layer.rotary is None else turns[layer.rotary]
            attended = self._attention(layer, kv, _normed(hidden, layer.attention_norm), inputs, turn)
            hidden = hidden + _scaled(_normed(attended, layer.attention_post_norm), residual)
            computed = layer.mlp(_normed(hidden, layer.mlp_norm))
            hidden = hidden + _scaled(_normed(computed, layer.mlp_post_norm), residual)
        return hidden

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Of rows that `forward` gave; float32, [rows, vocabulary]. On the CPU, at least `CPU_MIN_ROWS`."""
        assert self.head is not None, "the core asks for logits only where there is an output matrix"
        logits = self.head(self.normed(hidden)).float()
        cap = self.config.logits_softcap
        if cap is not None:
            logits = logits.div_(cap).tanh_().mul_(cap)
        return logits if self.config.logits_divisor == 1.0 else logits.div_(self.config.logits_divisor)

    @torch.inference_mode()
    def normed(self, hidden: Tensor) -> Tensor:
        """Hidden states after the final norm, as embeddings are made of."""
        return self.final_norm(hidden)

    def _attention(
        self,
        layer: DecoderLayer,
        kv: KVLayer,
        x: Tensor,
        inputs: StepInputs,
        turn: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        config = self.config
        heads, kv_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
        qkv = layer.qkv(x).view(x.shape[0], heads + 2 * kv_heads, dim)
        # Query and key heads are normed and turned together: one pass instead of two.
        query_key = qkv[:, : heads + kv_heads]
        if layer.query_key_norm is not None:
            query_key = layer.query_key_norm(query_key)
        if turn is not None:
            query_key = rotate(query_key, *turn)
        write_kv(kv, query_key[:, heads:], qkv[:, heads + kv_heads :], inputs.places)
        attended = paged_attention(
            query_key[:, :heads],
            kv,
            inputs.groups[layer.window],
            config.attention_scale,
            config.attention_softcap,
        )
        return layer.attention_output(attended.reshape(x.shape[0], heads * dim))


def _normed(x: Tensor, norm: Norm | None) -> Tensor:
    return x if norm is None else norm(x)


def _scaled(x: Tensor, multiplier: float) -> Tensor:
    return x if multiplier == 1.0 else x * multiplier
