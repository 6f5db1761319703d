"""y = x W^T + b through the library's matmuls: where there are many rows."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.engine.gpu.blas import chosen
from penstock.engine.gpu.quantized import dequantize_weight

_ALIGNMENT = 16  # elements: what the scaled matmul needs of both sides of a weight
# Up to so many rows the scaled matmul is faster without scales than with one for each row and channel.
_UNSCALED_ROWS = 768


class GpuLinear:
    """A weight [out, in] and optional bias, applied to [rows, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias
        self.nbytes = weight.nbytes + (0 if bias is None else bias.nbytes)
        self.count = weight.numel()
        found = chosen(weight) if bias is None else {}
        self._chosen = found.pop(1, None)
        self._in_summands = tuple(found.values())

    def __call__(self, x: Tensor) -> Tensor:
        if self._chosen is not None and (y := self._chosen(x, self.weight)) is not None:
            return y
        return F.linear(x, self.weight, self.bias)

    def summands(self, x: Tensor) -> Tensor:
        """The same for somebody who adds it up, [summands, rows, out] in float32, where that is faster."""
        for product in self._in_summands:
            if (y := product(x, self.weight)) is not None:
                return y
        return self(x)


class Fp8Linear:
    """A weight [out, in] in eight bits, scaled by output channel, applied to rows in eight bits."""

    def __init__(self, weight: Tensor, scales: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.scales = scales
        self.bias = None if bias is None else bias.to(torch.bfloat16)  # as the result is
        self.nbytes = weight.nbytes + scales.nbytes + (0 if self.bias is None else self.bias.nbytes)
        self.count = weight.numel()
        self._channels = scales[None, :]
        self._one = scales.new_ones(())
        # The scaled matmul takes only sides that it can cut evenly. Elsewhere the weight is widened.
        self._wide: Tensor | None = None
        if weight.shape[0] % _ALIGNMENT or weight.shape[1] % _ALIGNMENT:
            self._wide = dequantize_weight(weight, scales, torch.bfloat16)
            self.nbytes += self._wide.nbytes
        self._chosen = chosen(weight).get(1) if self._wide is None else None

    def __call__(self, x: Tensor, scales: Tensor) -> Tensor:
        """x in eight bits [rows, in], its value being x * scales[row]; the result is bfloat16."""
        if self._wide is not None:
            return F.linear((x.float() * scales[:, None]).to(torch.bfloat16), self._wide, self.bias)
        return self._multiply(x, scales[:, None], self._channels, self.bias)

    def best_unscaled(self, rows: int) -> bool:
        """Whether `unscaled` serves, and is faster, for so many rows."""
        return rows <= _UNSCALED_ROWS and self.bias is None and self._wide is None

    def unscaled(self, x: Tensor) -> Tensor:
        """x W^T of the eight-bit numbers themselves, in bfloat16: whoever reads it multiplies by the scales.

        The largest sums are of 448 * 448 * in, far below what bfloat16 holds.
        """
        if self._chosen is not None and (y := self._chosen(x, self.weight)) is not None:
            return y
        return self._multiply(x, self._one, self._one, None)

    def _multiply(self, x: Tensor, rows: Tensor, channels: Tensor, bias: Tensor | None) -> Tensor:
        return torch._scaled_mm(
            x,
            self.weight.t(),
            scale_a=rows,
            scale_b=channels,
            bias=bias,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
