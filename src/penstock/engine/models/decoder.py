"""The dense decoder: norm, attention, norm, gated MLP, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.engine.kernels.attention import AttentionGroup, KVLayer, paged_attention, write_kv
from penstock.engine.kernels.linear import Linear
from penstock.engine.layers.rotary import Rotary, rotate
from penstock.engine.models.config import DecoderConfig


@dataclass(slots=True)
class StepInputs:
    """One step on the device: all granted tokens of all sequences, one after another."""

    tokens: Tensor  # [rows] token ids
    positions: Tensor  # [rows]
    places: Tensor  # [rows] where keys and values go: block * block size + offset
    groups: Sequence[AttentionGroup]


@dataclass(slots=True)
class DecoderLayer:
    attention_norm: Tensor
    qkv: Linear
    attention_output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class Decoder:
    def __init__(
        self,
        config: DecoderConfig,
        embedding: Tensor,
        layers: list[DecoderLayer],
        final_norm: Tensor,
        head: Linear,
        rotary: Rotary,
    ) -> None:
        self.config = config
        self.embedding = embedding
        self.layers = layers
        self.final_norm = final_norm
        self.head = head
        self.rotary = rotary

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def weight_bytes(self) -> int:
        """What a step reads: all matrices. The embedding is only looked up."""
        matrices = [
            m for layer in self.layers for m in (layer.qkv, layer.attention_output, layer.gate_up, layer.down)
        ]
        return sum(m.nbytes for m in [*matrices, self.head])

    @torch.inference_mode()
    def forward(self, inputs: StepInputs, cache: list[KVLayer]) -> Tensor:
        """The hidden states after the last layer, [rows, hidden size]; `logits` makes the most of them."""
        config = self.config
        hidden = self.embedding[inputs.tokens]
        cos, sin = self.rotary.at(inputs.positions, hidden.dtype)
        for layer, kv in zip(self.layers, cache, strict=True):
            hidden = hidden + self._attention(
                layer, kv, self._norm(hidden, layer.attention_norm), inputs, cos, sin
            )
            gate, up = layer.gate_up(self._norm(hidden, layer.mlp_norm)).split(
                config.intermediate_size, dim=-1
            )
            hidden = hidden + layer.down(F.silu(gate) * up)
        return hidden

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Of rows that `forward` gave; float32, [rows, vocabulary]. On the CPU, at least `CPU_MIN_ROWS`."""
        return self.head(self.normed(hidden)).float()

    @torch.inference_mode()
    def normed(self, hidden: Tensor) -> Tensor:
        """Hidden states after the final norm, as embeddings are made of."""
        return self._norm(hidden, self.final_norm)

    def _attention(
        self, layer: DecoderLayer, kv: KVLayer, x: Tensor, inputs: StepInputs, cos: Tensor, sin: Tensor
    ) -> Tensor:
        heads, kv_heads, dim = self.config.num_heads, self.config.num_kv_heads, self.config.head_dim
        qkv = layer.qkv(x).view(x.shape[0], heads + 2 * kv_heads, dim)
        # Query and key heads turn together: one rotation instead of two.
        rotated = rotate(qkv[:, : heads + kv_heads], cos, sin)
        write_kv(kv, rotated[:, heads:], qkv[:, heads + kv_heads :], inputs.places)
        attended = paged_attention(rotated[:, :heads], kv, inputs.groups)
        return layer.attention_output(attended.reshape(x.shape[0], heads * dim))

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self.config.norm_eps)
