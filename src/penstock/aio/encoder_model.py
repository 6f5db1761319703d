"""A BERT encoder's forward pass in numpy: token ids in, one vector for each text out.

Texts are packed end to end, without padding: the dense layers see one long matrix, attention looks at texts
of the same length together. So no masks, and no work for tokens that are not there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float32]
# Tokens that go through the layers together: the widest intermediate result of MiniLM takes 12 MB.
PACKED_TOKENS: Final = 2048


@dataclass(frozen=True, slots=True)
class Norm:
    weight: Array
    bias: Array
    epsilon: float

    def __call__(self, states: Array) -> Array:
        """Each row to mean 0 and variance 1, in place."""
        states -= states.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", states, states) / states.shape[1]
        states *= (1.0 / np.sqrt(variance + self.epsilon)).astype(np.float32)[:, None]
        states *= self.weight
        states += self.bias
        return states


@dataclass(frozen=True, slots=True)
class Dense:
    weight: Array  # [in, out], contiguous
    bias: Array

    def __call__(self, states: Array) -> Array:
        result: Array = states @ self.weight
        result += self.bias
        return result


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer; the query's part of `qkv` carries attention's scale."""

    qkv: Dense
    mix: Dense
    mix_norm: Norm
    widen: Dense
    narrow: Dense
    norm: Norm


@dataclass(frozen=True, slots=True)
class EncoderModel:
    words: Array  # [vocabulary, width]
    positions: Array  # [longest, width], the type of a single text added
    norm: Norm
    layers: tuple[Layer, ...]
    heads: int

    @property
    def width(self) -> int:
        return int(self.words.shape[1])

    def mean_states(self, texts: Sequence[Sequence[int]]) -> Array:
        """The mean over each text's last hidden states [n, width]; no text is empty."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        means = np.empty((len(texts), self.width), np.float32)
        pack: list[int] = []
        tokens = 0
        for index in order:
            if pack and tokens + len(texts[index]) > PACKED_TOKENS:
                means[pack] = self._pack([texts[each] for each in pack])
                pack, tokens = [], 0
            pack.append(index)
            tokens += len(texts[index])
        if pack:
            means[pack] = self._pack([texts[each] for each in pack])
        return means

    def _pack(self, texts: Sequence[Sequence[int]]) -> Array:
        """The means of texts in ascending order of length."""
        groups = [(length, len(list(same))) for length, same in groupby(len(text) for text in texts)]
        ids = np.fromiter((token for text in texts for token in text), np.int64)
        places = np.concatenate([np.arange(length) for length, count in groups for _ in range(count)])
        states = self.norm(self.words[ids] + self.positions[places])
        for layer in self.layers:
            mixed = layer.mix(self._attention(layer.qkv(states), groups))
            mixed += states
            states = layer.mix_norm(mixed)
            result = layer.narrow(gelu(layer.widen(states)))
            result += states
            states = layer.norm(result)
        means = []
        start = 0
        for length, count in groups:
            stop = start + length * count
            means.append(states[start:stop].reshape(count, length, -1).mean(axis=1))
            start = stop
        return np.concatenate(means)

    def _attention(self, qkv: Array, groups: Sequence[tuple[int, int]]) -> Array:
        width = self.width
        result = np.empty((len(qkv), width), np.float32)
        start = 0
        for length, count in groups:
            stop = start + length * count
            shape = (count, length, 3, self.heads, width // self.heads)
            query, key, value = qkv[start:stop].reshape(shape).transpose(2, 0, 3, 1, 4)
            scores = query @ key.swapaxes(-1, -2)
            scores -= scores.max(axis=-1, keepdims=True)
            np.exp(scores, out=scores)
            scores /= scores.sum(axis=-1, keepdims=True)
            result[start:stop] = (scores @ value).transpose(0, 2, 1, 3).reshape(-1, width)
            start = stop
        return result


def gelu(states: Array) -> Array:
    """GELU by its usual tanh form: numpy has no erf, and vectors differ from the exact one's by 1e-6."""
    inner = states * states
    inner *= np.float32(0.044715)
    inner += np.float32(1.0)
    inner *= states
    inner *= np.float32(math.sqrt(2.0 / math.pi))
    np.tanh(inner, out=inner)
    inner += np.float32(1.0)
    inner *= states
    inner *= np.float32(0.5)
    return inner


def build(tensors: Mapping[str, Array], *, layers: int, heads: int, epsilon: float) -> EncoderModel:
    """The model of BERT's tensors, by their usual names; KeyError names one that is missing."""

    def norm(prefix: str) -> Norm:
        return Norm(tensors[f"{prefix}.LayerNorm.weight"], tensors[f"{prefix}.LayerNorm.bias"], epsilon)

    def dense(prefix: str) -> Dense:
        return Dense(np.ascontiguousarray(tensors[f"{prefix}.weight"].T), tensors[f"{prefix}.bias"])

    def layer(prefix: str) -> Layer:
        parts = [dense(f"{prefix}.attention.self.{name}") for name in ("query", "key", "value")]
        scale = np.float32((parts[0].weight.shape[1] / heads) ** -0.5)
        parts[0] = Dense(parts[0].weight * scale, parts[0].bias * scale)
        return Layer(
            Dense(np.hstack([part.weight for part in parts]), np.hstack([part.bias for part in parts])),
            dense(f"{prefix}.attention.output.dense"),
            norm(f"{prefix}.attention.output"),
            dense(f"{prefix}.intermediate.dense"),
            dense(f"{prefix}.output.dense"),
            norm(f"{prefix}.output"),
        )

    return EncoderModel(
        tensors["embeddings.word_embeddings.weight"],
        tensors["embeddings.position_embeddings.weight"]
        + tensors["embeddings.token_type_embeddings.weight"][0],
        norm("embeddings"),
        tuple(layer(f"encoder.layer.{number}") for number in range(layers)),
        heads,
    )
