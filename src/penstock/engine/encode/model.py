"""The encoder itself: attention both ways, norms behind each half of a layer.

A step's texts lie packed one after another, sorted by length, so that those of one length are a plain
slice: attention runs over each slice and nothing is padded. On the CPU a text's result does not
depend on its company: every matmul gets at least CPU_MIN_ROWS rows, attention is computed text by text
inside its kernel, and pooling is a sum over the text's own rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.engine.encode.config import EncoderConfig
from penstock.engine.encode.weights import EncoderWeights
from penstock.engine.kernels.activation import ACTIVATIONS
from penstock.engine.kernels.linear import CPU_MIN_ROWS, Linear
from penstock.engine.layers.norm import LayerNorm
from penstock.engine.request import Pooling


@dataclass(frozen=True, slots=True)
class EncodeItem:
    """One text of a step."""

    tokens: Sequence[int]
    segments: Sequence[int]  # empty: all 0
    pooling: Pooling


@dataclass(slots=True)
class EncoderLayer:
    qkv: Linear
    attention_output: Linear
    attention_norm: LayerNorm
    up: Linear
    down: Linear
    output_norm: LayerNorm


class EncoderModel:
    def __init__(self, weights: EncoderWeights, device: torch.device, dtype: torch.dtype) -> None:
        config = weights.config

        def read(name: str, layer: int | None = None) -> Tensor:
            return weights.read(name, layer).to(device, dtype)

        def linear(name: str, layer: int | None = None) -> Linear:
            return Linear(read(f"{name}.weight", layer), read(f"{name}.bias", layer))

        def norm(name: str, layer: int | None = None) -> LayerNorm:
            return LayerNorm(read(f"{name}.weight", layer), read(f"{name}.bias", layer), config.norm_eps)

        def qkv(layer: int) -> Linear:
            parts = ("query", "key", "value")
            return Linear(
                torch.cat([read(f"{part}.weight", layer) for part in parts]),
                torch.cat([read(f"{part}.bias", layer) for part in parts]),
            )

        self.config: EncoderConfig = config
        self.device = device
        self.dtype = dtype
        self._tokens = read("tokens.weight")
        # The first token's row is row 0 from here on.
        self._positions = read("positions.weight")[config.first_position :].contiguous()
        self._segments = read("segments.weight")
        self._embedding_norm = norm("embedding_norm")
        self._layers = [
            EncoderLayer(
                qkv=qkv(i),
                attention_output=linear("attention_output", i),
                attention_norm=norm("attention_norm", i),
                up=linear("up", i),
                down=linear("down", i),
                output_norm=norm("output_norm", i),
            )
            for i in range(config.num_layers)
        ]
        self._activation = ACTIVATIONS[config.activation]
        self._head = (linear("head_dense"), linear("head_output")) if config.scores else None

    @property
    def weight_bytes(self) -> int:
        """What a step reads: all matrices. The embeddings are only looked up."""
        matrices = [m for x in self._layers for m in (x.qkv, x.attention_output, x.up, x.down)]
        return sum(m.nbytes for m in (*matrices, *(self._head or ())))

    @torch.inference_mode()
    def encode(self, items: Sequence[EncodeItem]) -> list[Tensor]:
        """A float32 vector on the CPU for each text, in their order; of a "score", one number."""
        order = sorted(range(len(items)), key=lambda number: len(items[number].tokens))
        packed = [items[number] for number in order]
        hidden = self._forward(packed)
        vectors: list[Tensor] = []
        at = 0
        for item in packed:
            rows = hidden[at : at + len(item.tokens)]
            vectors.append(_pooled(rows, item.pooling))
            at += len(item.tokens)
        scored = [place for place, item in enumerate(packed) if item.pooling == "score"]
        if scored:
            for place, score in zip(scored, self._scores([vectors[i] for i in scored]), strict=True):
                vectors[place] = score
        found: list[Tensor] = [torch.empty(0)] * len(items)
        for number, vector in zip(order, vectors, strict=True):
            found[number] = vector.float().cpu()
        return found

    def _forward(self, items: Sequence[EncodeItem]) -> Tensor:
        """Hidden states of all tokens, [tokens, hidden]; items come sorted by length."""
        lengths = [len(item.tokens) for item in items]
        padding = max(0, CPU_MIN_ROWS - sum(lengths))
        tokens = [token for item in items for token in item.tokens] + [0] * padding
        positions = [place for length in lengths for place in range(length)] + [0] * padding
        segments = [s for item in items for s in item.segments or [0] * len(item.tokens)] + [0] * padding
        x = self._tokens[self._index(tokens)].add_(self._segments[self._index(segments)])
        x = self._embedding_norm(x.add_(self._positions[self._index(positions)]))
        slices = [(length, len(list(group))) for length, group in groupby(lengths)]
        for layer in self._layers:
            attended = self._attend(layer.qkv(x), slices)
            x = layer.attention_norm(layer.attention_output(attended).add_(x))
            x = layer.output_norm(layer.down(self._activation(layer.up(x))).add_(x))
        return x

    def _attend(self, qkv: Tensor, slices: Sequence[tuple[int, int]]) -> Tensor:
        """Attention inside each text. `slices` are (length, texts) in row order."""
        config = self.config
        # Rows that only fill up a matmul stay zero: they belong to no text.
        output = qkv.new_zeros(qkv.shape[0], config.hidden_size)
        at = 0
        for length, texts in slices:
            end = at + length * texts
            split = qkv[at:end].view(texts, length, 3, config.num_heads, -1).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(split[0], split[1], split[2])
            output[at:end] = attended.transpose(1, 2).reshape(length * texts, -1)
            at = end
        return output

    def _scores(self, first: list[Tensor]) -> list[Tensor]:
        assert self._head is not None, "the core asks for scores only where there is a head"
        dense, output = self._head
        rows = torch.stack(first + first[:1] * max(0, CPU_MIN_ROWS - len(first)))
        scores = output(torch.tanh(dense(rows)))
        if self.config.score_activation == "sigmoid":
            scores = torch.sigmoid(scores)
        return list(scores[: len(first)])

    def _index(self, values: list[int]) -> Tensor:
        return torch.tensor(values, device=self.device)


def _pooled(rows: Tensor, pooling: Pooling) -> Tensor:
    if pooling == "mean":
        return rows.float().mean(dim=0)
    # A classifier reads the first token too.
    return rows[-1] if pooling == "last" else rows[0]
