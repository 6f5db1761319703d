"""Rotary position embedding, half-split order."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from penstock.engine.models.config import DecoderConfig, RopeScaling


class Rotary:
    """cos and sin for every position the model may see, computed once in float32."""

    def __init__(
        self, config: DecoderConfig, positions: int, factors: Tensor | None, device: torch.device
    ) -> None:
        half = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
        inverse = 1.0 / (config.rope_theta**half)
        if factors is not None:
            inverse = inverse / factors
        elif config.rope_scaling is not None:
            inverse = _scaled(inverse, config.rope_scaling)
        angles = torch.outer(torch.arange(positions).float(), inverse)
        self._cos = angles.cos().to(device)
        self._sin = angles.sin().to(device)

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
