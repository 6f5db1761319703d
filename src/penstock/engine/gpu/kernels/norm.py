"""The residual and the norm of what comes next, in one pass over a row."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.kernels.launch import await_previous, overlapped
from penstock.engine.gpu.kernels.numbers import power_of_two
from penstock.engine.gpu.kernels.quantize import fp8_scale, row_warps, to_fp8
from penstock.engine.gpu.reference_rows import Factors


@triton.jit
def _rms(x, size, eps):
    """x over its root mean square; what lies beyond the row is zero."""
    return x * tl.rsqrt(tl.sum(x * x) / size + eps)


@triton.jit
def _add_norm(
    hidden_at,
    delta_at,
    row_factors_at,
    column_factors_at,
    post_weight_at,
    weight_at,
    out_at,
    scales_at,
    size,
    hidden_stride,
    delta_stride,
    delta_distance,
    out_stride,
    eps,
    multiplier,
    SUMMANDS: tl.constexpr,  # of delta; 0: there is none
    FACTORS: tl.constexpr,
    POST_NORM: tl.constexpr,
    NORM: tl.constexpr,
    QUANTIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    kept = columns < size
    # Weights, which no kernel writes, before anything is waited for.
    if NORM:
        weight = tl.load(weight_at + columns, mask=kept, other=0.0).to(tl.float32)
    if POST_NORM:
        post_weight = tl.load(post_weight_at + columns, mask=kept, other=0.0).to(tl.float32)
    if FACTORS:
        factors = tl.load(column_factors_at + columns, mask=kept, other=0.0)
    await_previous(PDL)
    hidden_row = hidden_at + row * hidden_stride + columns
    x = tl.load(hidden_row, mask=kept, other=0.0).to(tl.float32)
    if SUMMANDS > 0:
        delta_row = delta_at + row * delta_stride + columns
        delta = tl.load(delta_row, mask=kept, other=0.0).to(tl.float32)
        for number in tl.static_range(1, SUMMANDS):
            delta += tl.load(delta_row + number * delta_distance, mask=kept, other=0.0)
        if FACTORS:
            delta *= factors * tl.load(row_factors_at + row)
        if POST_NORM:
            delta = _rms(delta, size, eps) * post_weight
        # The norm is of what the next layer will read, rounded.
        rounded = (x + multiplier * delta).to(hidden_at.dtype.element_ty)
        tl.store(hidden_row, rounded, mask=kept)
        x = rounded.to(tl.float32)
    if NORM:
        x = _rms(x, size, eps) * weight
    out_row = out_at + row * out_stride + columns
    if QUANTIZE:
        scale = fp8_scale(tl.max(tl.abs(x)))
        tl.store(scales_at + row, scale)
        tl.store(out_row, to_fp8(x, scale, out_at.dtype.element_ty), mask=kept)
    else:
        tl.store(out_row, x.to(out_at.dtype.element_ty), mask=kept)


def _warps(rows: int, block: int, quantized: bool) -> int:
    # Few rows go by how long one of them takes. Eight bits are written as they are held with eight values a
    # thread, with more they would be exchanged first.
    few = rows <= 512 and block <= 8192 and not quantized
    return min(8, max(1, block // 128)) if few else row_warps(block)


def add_norm(
    hidden: Tensor,
    delta: Tensor | None,
    weight: Tensor | None,
    eps: float,
    *,
    post_weight: Tensor | None = None,
    multiplier: float = 1.0,
    factors: Factors | None = None,
    out: Tensor,
    scales: Tensor | None = None,
) -> None:
    """hidden += multiplier * delta, in place, delta normed first where it has a weight; out = norm of hidden.

    Without a weight out is hidden itself. With scales it is in eight bits. Factors are those of delta. Delta
    [summands, rows, size] in float32 is added up first.
    """
    rows, size = hidden.shape
    if rows == 0:
        return
    block = power_of_two(size)
    summands = 0 if delta is None else delta.shape[0] if delta.dim() == 3 else 1
    _add_norm[(rows,)](
        hidden,
        delta,
        *((None, None) if factors is None else factors),
        post_weight,
        weight,
        out,
        scales,
        size,
        hidden.stride(0),
        0 if delta is None else delta.stride(-2),
        0 if delta is None else delta.stride(0),
        out.stride(0),
        eps,
        multiplier,
        SUMMANDS=summands,
        FACTORS=factors is not None,
        POST_NORM=post_weight is not None,
        NORM=weight is not None,
        QUANTIZE=scales is not None,
        BLOCK=block,
        num_warps=_warps(rows, block, scales is not None),
        **overlapped(),
    )
