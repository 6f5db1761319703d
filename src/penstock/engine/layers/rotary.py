"""Rotary position embedding, half-split order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the context a model was first trained on."""

    kind: Literal["linear", "llama3"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


class Rotary:
    """cos and sin for every position that may occur, computed once in float32."""

    def __init__(
        self,
        head_dim: int,
        theta: float,
        scaling: RopeScaling | None,
        factors: Tensor | None,
        device: torch.device,
    ) -> None:
        """`factors` divide the frequencies and come with the weights; they replace `scaling`."""
        half = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
        inverse = 1.0 / (theta**half)
        if factors is not None:
            inverse = inverse / factors
        elif scaling is not None:
            inverse = _scaled(inverse, scaling)
        self._inverse = inverse
        self._device = device
        self._cos = self._sin = torch.empty(0)

    def prepare(self, positions: int) -> None:
        """Make the tables for positions below this one; needed before the first `at`."""
        angles = torch.outer(torch.arange(positions).float(), self._inverse)
        self._cos = angles.cos().to(self._device)
        self._sin = angles.sin().to(self._device)

    def at(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin as [tokens, 1, head_dim / 2], for all layers of a step."""
        return self._cos[positions].unsqueeze(1).to(dtype), self._sin[positions].unsqueeze(1).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: [tokens, heads, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _scaled(inverse: Tensor, scaling: RopeScaling) -> Tensor:
    if scaling.kind == "linear":
        return inverse / scaling.factor
    # Llama 3: long wavelengths are stretched by the factor, short ones kept, those between blended.
    wavelength = 2 * math.pi / inverse
    smooth = (scaling.original_context / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    smooth = smooth.clamp(0.0, 1.0)
    return (1 - smooth) * inverse / scaling.factor + smooth * inverse
