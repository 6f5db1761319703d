"""Rows in eight bits (E4M3), each with a scale of its own."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.kernels.launch import await_previous, overlapped
from penstock.engine.gpu.kernels.numbers import power_of_two
from penstock.engine.gpu.quantized import FP8_MAX
from penstock.engine.gpu.reference_rows import LEAST_SCALE

_FP8_MAX = tl.constexpr(FP8_MAX)
_LEAST_SCALE = tl.constexpr(LEAST_SCALE)


@triton.jit
def fp8_scale(largest):
    """What the values of a row are stored in units of, given the largest magnitude among them."""
    return tl.maximum(largest * (1.0 / _FP8_MAX), _LEAST_SCALE)


@triton.jit
def to_fp8(x, scale, dtype: tl.constexpr):
    # A quotient may round to a little more than the largest number there is.
    return tl.clamp(x / scale, -_FP8_MAX, _FP8_MAX).to(dtype)


@triton.jit
def _quantize_rows(
    x_at, out_at, scales_at, size, x_stride, out_stride, BLOCK: tl.constexpr, PDL: tl.constexpr
):
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    kept = columns < size
    x = tl.load(x_at + row * x_stride + columns, mask=kept, other=0.0).to(tl.float32)
    scale = fp8_scale(tl.max(tl.abs(x)))
    tl.store(scales_at + row, scale)
    tl.store(out_at + row * out_stride + columns, to_fp8(x, scale, out_at.dtype.element_ty), mask=kept)


def row_warps(block: int) -> int:
    """Warps for a row that one program holds: eight values a thread, where so many warps can be had."""
    return max(1, min(16, block // 256))


def quantize_rows(x: Tensor, *, out: Tensor, scales: Tensor) -> None:
    """out[row] * scales[row] is x[row], as nearly as eight bits can tell."""
    rows, size = x.shape
    if rows == 0:
        return
    block = power_of_two(size)
    _quantize_rows[(rows,)](
        x,
        out,
        scales,
        size,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=row_warps(block),
        **overlapped(),
    )
