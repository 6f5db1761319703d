"""Weights in eight bits: E4M3 with one scale for each output channel."""

from __future__ import annotations

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # the largest number of E4M3
_PIECE = 1 << 26  # elements that are taken at once: 256 MB in float32


def quantize_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(fp8 [out, in], float32 [out]): weight ~ fp8 * scale. A row of zeros gets the scale 1."""
    count, size = weight.shape
    quantized = torch.empty_like(weight, dtype=FP8, memory_format=torch.contiguous_format)
    scales = torch.empty(count, dtype=torch.float32, device=weight.device)
    step = max(_PIECE // size, 1)
    for first in range(0, count, step):
        piece = weight[first : first + step].float()
        scale = piece.abs().amax(dim=1) / FP8_MAX
        scale = torch.where(scale > 0, scale, 1.0)
        # The quotient may round to a little over the largest number, which the format cannot hold.
        quotient = (piece / scale[:, None]).clamp_(-FP8_MAX, FP8_MAX)
        quantized[first : first + step].copy_(quotient)
        scales[first : first + step] = scale
    return quantized, scales


def dequantize_weight(quantized: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    count, size = quantized.shape
    weight = torch.empty(count, size, dtype=dtype, device=quantized.device)
    step = max(_PIECE // size, 1)
    for first in range(0, count, step):
        last = first + step
        torch.mul(quantized[first:last].float(), scales[first:last, None], out=weight[first:last])
    return weight
