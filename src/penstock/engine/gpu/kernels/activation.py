"""The gate of a feed-forward layer."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.kernels.launch import await_previous, overlapped
from penstock.engine.gpu.kernels.numbers import ceil_div, power_of_two
from penstock.engine.gpu.kernels.quantize import fp8_scale, row_warps, to_fp8
from penstock.engine.gpu.reference_rows import Factors
from penstock.engine.kernels.activation import Activation

_BLOCK = 2048  # columns of a program that need not know the rest of its row
_SQRT_HALF = tl.constexpr(0.7071067811865476)
_MINUS_TWICE_SQRT_2_PI = tl.constexpr(-1.5957691216057308)  # -2 sqrt(2 / pi)


@triton.jit
def activated(x, KIND: tl.constexpr):
    """x: float32. The kinds are those of `penstock.engine.kernels.activation`."""
    if KIND == "silu":
        return x / (1.0 + tl.exp(-x))
    elif KIND == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * _SQRT_HALF))
    elif KIND == "gelu_tanh":
        # (1 + tanh(y)) / 2 is the logistic function of 2 y.
        return x / (1.0 + tl.exp(x * _MINUS_TWICE_SQRT_2_PI * (1.0 + 0.044715 * x * x)))
    else:
        tl.static_assert(KIND == "relu")
        return tl.maximum(x, 0.0)


@triton.jit
def _gated(
    gate_up_at,
    rows_at,
    columns_at,
    row,
    columns,
    inner,
    gate_up_stride,
    KIND: tl.constexpr,
    FACTORS: tl.constexpr,
):
    kept = columns < inner
    gate_at = gate_up_at + row * gate_up_stride + columns
    gate = tl.load(gate_at, mask=kept, other=0.0).to(tl.float32)
    up = tl.load(gate_at + inner, mask=kept, other=0.0).to(tl.float32)
    if FACTORS:
        factor = tl.load(rows_at + row)
        gate *= factor * tl.load(columns_at + columns, mask=kept, other=0.0)
        up *= factor * tl.load(columns_at + inner + columns, mask=kept, other=0.0)
    return activated(gate, KIND) * up


@triton.jit
def _activate(
    gate_up_at,
    rows_at,
    columns_at,
    out_at,
    inner,
    gate_up_stride,
    out_stride,
    KIND: tl.constexpr,
    FACTORS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = _gated(gate_up_at, rows_at, columns_at, row, columns, inner, gate_up_stride, KIND, FACTORS)
    tl.store(out_at + row * out_stride + columns, x.to(out_at.dtype.element_ty), mask=columns < inner)


@triton.jit
def _activate_fp8(
    gate_up_at,
    rows_at,
    columns_at,
    out_at,
    scales_at,
    inner,
    gate_up_stride,
    out_stride,
    KIND: tl.constexpr,
    FACTORS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    x = _gated(gate_up_at, rows_at, columns_at, row, columns, inner, gate_up_stride, KIND, FACTORS)
    scale = fp8_scale(tl.max(tl.abs(x)))
    tl.store(scales_at + row, scale)
    values = to_fp8(x, scale, out_at.dtype.element_ty)
    tl.store(out_at + row * out_stride + columns, values, mask=columns < inner)


def activate(
    gate_up: Tensor,
    activation: Activation,
    *,
    factors: Factors | None = None,
    out: Tensor,
    scales: Tensor | None = None,
) -> None:
    """out = act(gate) * up of rows [gate, up], by their factors; in eight bits where there are scales."""
    rows, inner = out.shape
    if rows == 0:
        return
    strides = gate_up.stride(0), out.stride(0)
    by_row, by_column = (None, None) if factors is None else factors
    options = {"KIND": activation, "FACTORS": factors is not None, **overlapped()}
    if scales is None:
        grid = (rows, ceil_div(inner, _BLOCK))
        _activate[grid](
            gate_up, by_row, by_column, out, inner, *strides, **options, BLOCK=_BLOCK, num_warps=8
        )
    else:
        block = power_of_two(inner)
        _activate_fp8[(rows,)](
            gate_up, by_row, by_column, out, scales, inner, *strides, **options,
            BLOCK=block, num_warps=row_warps(block),
        )  # fmt: skip
