"""Matmuls for few rows, which read each weight once and do everything around it on the way.

The time of such a matmul is that of reading its weight, so the kernels are built around loads: many wide ones
in flight, weights asked for before the activations are known to be there (`PDL`: no kernel of a step may
write weights), no second pass. Sums are taken in a fixed order: equal inputs give equal bits.

One row is multiplied and added in registers, in float32. Several rows go through the tensor cores with the
weight on the left; a row's bits do not depend on its neighbours there, but may differ from those of one row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.kernels.activation import activated
from penstock.engine.gpu.kernels.launch import overlapped
from penstock.engine.gpu.kernels.numbers import ceil_div
from penstock.engine.gpu.kernels.skinny_shapes import DotShape, RowShape, choose_dot, choose_row
from penstock.engine.kernels.activation import Activation


def skinny_rows(dtype: torch.dtype) -> int:
    """Rows up to which these, on weights of a type, are to be used: there they beat the library's matmuls
    with kernels around them."""
    # Eight bits are widened here, while the library multiplies them as they are. Several rows
    # that are yet to be divided by their root mean square may be too large for float16.
    return 1 if dtype.itemsize == 1 or dtype == torch.float16 else 8


@triton.jit
def _weight_rows(N, BLOCK_N: tl.constexpr, GATED: tl.constexpr):  # type: ignore[no-untyped-def]
    """The program's rows of the weight; gated: gate, up, gate, up, ..., where up rows begin at N // 2.

    Rows beyond the last are the last again, so that loads need no mask.
    """
    index = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    if GATED:
        inner = N // 2
        return tl.minimum(index // 2, inner - 1) + (index % 2) * inner
    else:
        return tl.minimum(index, N - 1)


@triton.jit
def _tile(pointers, columns, i: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr):  # type: ignore[no-untyped-def]
    """The i-th tile along K. Weights are not read again: they leave the caches first."""
    if (i + 1) * BLOCK_K <= K:
        return tl.load(pointers + i * BLOCK_K, eviction_policy="evict_first")
    else:
        inside = (i * BLOCK_K + columns < K)[None, :]
        return tl.load(pointers + i * BLOCK_K, mask=inside, other=0.0, eviction_policy="evict_first")


@triton.jit
def _prefetch(weight_ptr, rows, K: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Bring the first columns of some rows of the weight into the second-level cache."""
    LINE: tl.constexpr = 128 * 8 // weight_ptr.dtype.element_ty.primitive_bitwidth  # elements in 128 bytes
    if COLUMNS >= LINE:
        columns = tl.minimum(tl.arange(0, COLUMNS // LINE) * LINE, K - 1)
        lines = weight_ptr + rows[:, None].to(tl.int64) * K + columns[None, :]
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [lines], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def _row_kernel(  # type: ignore[no-untyped-def]
    x_ptr, norm_ptr, weight_ptr, scales_ptr, bias_ptr, out_ptr, N, eps, multiplier,
    K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, VEC: tl.constexpr, DEPTH: tl.constexpr,
    NORMED: tl.constexpr, SCALED: tl.constexpr, BIASED: tl.constexpr, ADD: tl.constexpr, GATED: tl.constexpr,
    ACTIVATION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row. VEC weights are 16 bytes: what a thread loads at once and sums before anything else."""
    TILES: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    rows = _weight_rows(N, BLOCK_N, GATED)
    columns = tl.arange(0, BLOCK_K)
    pointers = weight_ptr + rows[:, None].to(tl.int64) * K + columns[None, :]

    # A window of DEPTH tiles is on its way while one is multiplied.
    tiles = ()
    for i in tl.static_range(0, DEPTH):
        if i < TILES:
            tiles = tiles + (_tile(pointers, columns, i, K, BLOCK_K),)  # type: ignore[assignment]  # noqa: RUF005
    if SCALED:
        scales = tl.load(scales_ptr + rows)
    if PDL:
        tl.extra.cuda.gdc_wait()

    sums = tl.zeros((BLOCK_N, BLOCK_K // VEC), tl.float32)
    squares = tl.zeros((BLOCK_K // VEC,), tl.float32)
    for i in tl.static_range(0, TILES):
        if i + DEPTH < TILES:
            tiles = tiles + (_tile(pointers, columns, i + DEPTH, K, BLOCK_K),)  # type: ignore[assignment]  # noqa: RUF005
        inside = i * BLOCK_K + columns < K
        x = tl.load(x_ptr + i * BLOCK_K + columns, mask=inside, other=0.0).to(tl.float32)
        if NORMED:
            squares += tl.sum(tl.reshape(x * x, (BLOCK_K // VEC, VEC)), axis=1)
            x *= tl.load(norm_ptr + i * BLOCK_K + columns, mask=inside, other=0.0).to(tl.float32)
        products = tiles[i].to(tl.float32) * x[None, :]
        sums += tl.sum(tl.reshape(products, (BLOCK_N, BLOCK_K // VEC, VEC)), axis=2)
    y = tl.sum(sums, axis=1)

    if NORMED:
        y *= tl.rsqrt(tl.sum(squares, axis=0) / K + eps)
    if SCALED:
        y *= scales
    if BIASED:
        y += tl.load(bias_ptr + rows).to(tl.float32)
    if GATED:
        gate, up = tl.split(tl.reshape(y, (BLOCK_N // 2, 2)))
        index = tl.program_id(0) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
        value = activated(gate, ACTIVATION) * up
        tl.store(out_ptr + index, value.to(out_ptr.dtype.element_ty), mask=index < N // 2)
    else:
        index = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
        if ADD:
            y = tl.load(out_ptr + rows).to(tl.float32) + multiplier * y
        tl.store(out_ptr + index, y.to(out_ptr.dtype.element_ty), mask=index < N)


@triton.jit
def _dot_kernel(  # type: ignore[no-untyped-def]
    x_ptr, norm_ptr, weight_ptr, scales_ptr, bias_ptr, out_ptr, N, M, x_stride, out_stride, eps, multiplier,
    K: tl.constexpr, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr,
    STAGES: tl.constexpr, NORMED: tl.constexpr, SCALED: tl.constexpr, BIASED: tl.constexpr, ADD: tl.constexpr,
    GATED: tl.constexpr, ACTIVATION: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """M rows, at most ROWS. The K of a tile is cut into SPLIT pieces, one for each warp, so that a program
    needs only few rows of the weight and there are enough programs."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    weight_rows = _weight_rows(N, BLOCK_N, GATED)
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, SPLIT)[:, None] * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    x_rows = tl.minimum(rows, M - 1)
    weights = weight_ptr + weight_rows[None, :, None].to(tl.int64) * K + columns[:, None, :]
    inputs = x_ptr + x_rows[None, :, None] * x_stride + columns[:, None, :]
    if PDL:
        _prefetch(weight_ptr, weight_rows, K, 2 * SPLIT * BLOCK_K)
        tl.extra.cuda.gdc_wait()

    sums = tl.zeros((SPLIT, BLOCK_N, ROWS), tl.float32)
    squares = tl.zeros((SPLIT, ROWS), tl.float32)
    for start in tl.range(0, K, SPLIT * BLOCK_K, num_stages=STAGES):
        if K % (SPLIT * BLOCK_K) == 0:
            tile = tl.load(weights + start, eviction_policy="evict_first")
            x = tl.load(inputs + start)
        else:
            inside = (start + columns < K)[:, None, :]
            tile = tl.load(weights + start, mask=inside, other=0.0, eviction_policy="evict_first")
            x = tl.load(inputs + start, mask=inside, other=0.0)
        if NORMED:
            wide = x.to(tl.float32)
            squares += tl.sum(wide * wide, axis=2)
            norm = tl.load(norm_ptr + start + columns, mask=start + columns < K, other=0.0)
            x = (wide * norm.to(tl.float32)[:, None, :]).to(x.dtype)
        if SCALED:
            tile = tile.to(tl.float32)  # on the way to bfloat16: the direct conversion is slower than memory
        sums = tl.dot(tile.to(x.dtype), tl.permute(x, (0, 2, 1)), sums, input_precision="ieee")
    y = tl.sum(sums, axis=0)

    if NORMED:
        y *= tl.rsqrt(tl.sum(squares, axis=0) / K + eps)[None, :]
    if SCALED:
        y *= tl.load(scales_ptr + weight_rows)[:, None]
    if BIASED:
        y += tl.load(bias_ptr + weight_rows).to(tl.float32)[:, None]
    if GATED:
        gate, up = tl.split(tl.permute(tl.reshape(y, (BLOCK_N // 2, 2, ROWS)), (0, 2, 1)))
        index = tl.program_id(0) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
        value = activated(gate, ACTIVATION) * up
        places = out_ptr + rows[None, :] * out_stride + index[:, None]
        written = (index < N // 2)[:, None] & (rows < M)[None, :]
        tl.store(places, value.to(out_ptr.dtype.element_ty), mask=written)
    else:
        index = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
        places = out_ptr + rows[None, :] * out_stride + index[:, None]
        written = (index < N)[:, None] & (rows < M)[None, :]
        if ADD:
            y = tl.load(places, mask=written, other=0.0).to(tl.float32) + multiplier * y
        tl.store(places, y.to(out_ptr.dtype.element_ty), mask=written)


def norm_linear(
    hidden: Tensor,
    norm_weight: Tensor,
    eps: float,
    weight: Tensor,
    *,
    scales: Tensor | None = None,
    bias: Tensor | None = None,
    out: Tensor,
) -> None:
    """out = rms_norm(hidden) W^T + bias."""
    _launch(hidden, weight, out, norm_weight=norm_weight, eps=eps, scales=scales, bias=bias)


def gated_linear(
    hidden: Tensor,
    norm_weight: Tensor,
    eps: float,
    weight: Tensor,
    *,
    scales: Tensor | None = None,
    bias: Tensor | None = None,
    activation: Activation,
    out: Tensor,
) -> None:
    """out = activation(gate) * up, both of rms_norm(hidden) W^T + bias; the gate's rows come first."""
    _launch(
        hidden, weight, out,
        norm_weight=norm_weight, eps=eps, scales=scales, bias=bias, activation=activation,
    )  # fmt: skip


def linear_add(
    x: Tensor,
    weight: Tensor,
    hidden: Tensor,
    *,
    scales: Tensor | None = None,
    bias: Tensor | None = None,
    multiplier: float = 1.0,
) -> None:
    """hidden += multiplier * (x W^T + bias), rounded once."""
    _launch(x, weight, hidden, scales=scales, bias=bias, multiplier=multiplier, add=True)


def _launch(
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    *,
    norm_weight: Tensor | None = None,
    eps: float = 0.0,
    scales: Tensor | None = None,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    add: bool = False,
    multiplier: float = 1.0,
) -> None:
    rows, size = x.shape
    count = weight.shape[0]
    gated = activation is not None
    shape: RowShape | DotShape
    if rows == 1:
        shape = choose_row(count, size, weight.dtype)
    else:
        shape = choose_dot(count, size, weight.dtype, rows=rows)
    pointers = (
        x,
        x if norm_weight is None else norm_weight,
        weight,
        x if scales is None else scales,
        x if bias is None else bias,
        out,
    )
    options = {
        "K": size,
        "BLOCK_N": shape.block_n,
        "BLOCK_K": shape.block_k,
        "NORMED": norm_weight is not None,
        "SCALED": scales is not None,
        "BIASED": bias is not None,
        "ADD": add,
        "GATED": gated,
        "ACTIVATION": activation,
        "num_warps": shape.warps,
        **overlapped(),
    }
    grid = (ceil_div(count, shape.block_n),)
    if isinstance(shape, RowShape):
        vector = 16 // weight.itemsize
        _row_kernel[grid](*pointers, count, eps, multiplier, VEC=vector, DEPTH=shape.depth, **options)
    else:
        _dot_kernel[grid](
            *pointers, count, rows, x.stride(0), out.stride(0), eps, multiplier,
            ROWS=shape.rows, SPLIT=shape.split, STAGES=shape.stages, **options,
        )  # fmt: skip
