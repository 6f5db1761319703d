"""Rotary position embedding, half-split order, and the ways of stretching it over longer contexts.

Cached keys are rotated once and for all, so how a position is turned may not depend on how long a
sequence happens to be. Where a kind of scaling chooses by length (`dynamic`, `longrope`), the choice is
made once, from the longest sequence the engine will hold: a longer one than the model was first trained
on gets the long form for all of its positions, and for all other sequences too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

RopeKind = Literal["default", "linear", "dynamic", "yarn", "longrope", "llama3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """How positions become angles; layers of different kinds may have different ones."""

    dim: int  # so many leading dimensions of a head turn
    theta: float
    kind: RopeKind = "default"
    factor: float = 1.0  # how far the context is stretched
    original_context: int = 0  # tokens the model was first trained on
    attention_factor: float = 1.0  # multiplies cos and sin
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0  # yarn: turns within the original context above which nothing is stretched
    beta_slow: float = 1.0  # and below which everything is
    truncate: bool = True
    short_factors: tuple[float, ...] = ()  # longrope: a divisor for each frequency
    long_factors: tuple[float, ...] = ()


class Rotary:
    """cos and sin for every position that may occur, computed once in float32."""

    def __init__(self, rope: Rope, device: torch.device) -> None:
        self._rope = rope
        self._device = device
        self.cos = self.sin = torch.empty(0)  # [positions, rotated dimensions / 2]

    def prepare(self, positions: int) -> None:
        """Make the tables for positions below this one; needed before the first `at`."""
        angles = torch.outer(torch.arange(positions).float(), frequencies(self._rope, positions))
        self.cos = (angles.cos() * self._rope.attention_factor).to(self._device)
        self.sin = (angles.sin() * self._rope.attention_factor).to(self._device)

    def at(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin as [tokens, 1, rotated dimensions / 2], for all layers of a step."""
        return self.cos[positions].unsqueeze(1).to(dtype), self.sin[positions].unsqueeze(1).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: [tokens, heads, head_dim]; dimensions beyond the rotated ones stay as they are."""
    half = cos.shape[-1]
    first, second = x[..., :half], x[..., half : 2 * half]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat(turned if x.shape[-1] == 2 * half else (*turned, x[..., 2 * half :]), dim=-1)


def frequencies(rope: Rope, positions: int) -> Tensor:
    """Angle per position of each pair of dimensions, for sequences of up to `positions` tokens."""
    longer = positions > rope.original_context
    theta = rope.theta
    if rope.kind == "dynamic" and longer:
        stretch = rope.factor * positions / rope.original_context - (rope.factor - 1)
        theta = theta * stretch ** (rope.dim / (rope.dim - 2))
    inverse = 1.0 / theta ** (torch.arange(0, rope.dim, 2, dtype=torch.int64).float() / rope.dim)
    match rope.kind:
        case "linear":
            return inverse / rope.factor
        case "longrope":
            return inverse / torch.tensor(rope.long_factors if longer else rope.short_factors)
        case "llama3":
            return _llama3(inverse, rope)
        case "yarn":
            return _yarn(inverse, rope)
    return inverse


def _llama3(inverse: Tensor, rope: Rope) -> Tensor:
    """Long wavelengths are stretched by the factor, short ones kept, those between blended."""
    wavelength = 2 * math.pi / inverse
    smooth = (rope.original_context / wavelength - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    smooth = smooth.clamp(0.0, 1.0)
    return (1 - smooth) * inverse / rope.factor + smooth * inverse


def _yarn(inverse: Tensor, rope: Rope) -> Tensor:
    """As llama 3's, but blended along the index of the dimension instead of the wavelength."""

    def index_of(turns: float) -> float:
        """Which pair of dimensions turns so often within the original context."""
        wavelength = rope.original_context / turns
        return rope.dim * math.log(wavelength / (2 * math.pi)) / (2 * math.log(rope.theta))

    first, last = index_of(rope.beta_fast), index_of(rope.beta_slow)
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.dim - 1)
    if first == last:
        last += 0.001  # a step instead of a division by zero
    stretched = ((torch.arange(rope.dim // 2).float() - first) / (last - first)).clamp(0.0, 1.0)
    return inverse / rope.factor * stretched + inverse * (1 - stretched)
