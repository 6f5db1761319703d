"""Head norms, rotary positions and the write to the cache, in one pass over queries, keys and values.

A program takes some heads of some rows, all of them queries, all keys or all values. Each vector is held as
its two rotated halves and the rest that is not rotated, so that a thread has both partners of a rotation and
may write where it read.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.kernels.launch import await_previous, overlapped
from penstock.engine.gpu.kernels.numbers import ceil_div, power_of_two
from penstock.engine.gpu.kernels.quantize import fp8_scale, to_fp8
from penstock.engine.gpu.reference_rows import Factors


@dataclass(frozen=True, slots=True)
class Shape:
    rows: int  # of a program
    heads: int  # of each row
    warps: int


def choose_shape(rows: int) -> Shape:
    return Shape(1, 8, 4) if rows <= 512 else Shape(2, 8, 4)


@triton.jit(do_not_specialize=["rows"])  # it changes from step to step
def _rotate_and_store(
    qkv_at,
    row_factors_at,
    column_factors_at,
    keys_at,
    values_at,
    key_scales_at,
    value_scales_at,
    positions_at,
    places_at,
    cos_at,
    sin_at,
    query_norm_at,
    key_norm_at,
    rows,
    qkv_stride,
    block_stride,
    head_stride,
    token_stride,
    scale_block_stride,
    scale_head_stride,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    HALF: tl.constexpr,
    FACTORS: tl.constexpr,
    ROTATE: tl.constexpr,
    NORM: tl.constexpr,
    SCALED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    await_previous(PDL)
    REST: tl.constexpr = DIM - 2 * HALF
    QUERY_GROUPS: tl.constexpr = (HEADS + GROUP - 1) // GROUP
    KEY_GROUPS: tl.constexpr = (KV_HEADS + GROUP - 1) // GROUP
    part = tl.program_id(1)
    is_query = part < QUERY_GROUPS
    is_value = part >= QUERY_GROUPS + KEY_GROUPS
    first = tl.where(is_query, 0, tl.where(is_value, HEADS + KV_HEADS, HEADS))
    group = part - tl.where(is_query, 0, tl.where(is_value, QUERY_GROUPS + KEY_GROUPS, QUERY_GROUPS))
    vectors = tl.arange(0, ROWS * GROUP)
    row = (tl.program_id(0) * ROWS + vectors // GROUP).to(tl.int64)
    head = group * GROUP + vectors % GROUP
    kept = (row < rows) & (head < tl.where(is_query, HEADS, KV_HEADS))
    # First of all: other addresses depend on them.
    place = tl.load(places_at + row, mask=kept, other=0)
    if ROTATE:
        position = tl.load(positions_at + row, mask=kept, other=0)
    dims = tl.arange(0, HALF_BLOCK)
    kept_half = kept[:, None] & (dims < HALF)[None, :]
    source = (qkv_at + row * qkv_stride + (first + head) * DIM)[:, None] + dims[None, :]
    low = tl.load(source, mask=kept_half, other=0.0).to(tl.float32)
    high = tl.load(source + HALF, mask=kept_half, other=0.0).to(tl.float32)
    rests = tl.arange(0, REST_BLOCK)
    kept_rest = kept[:, None] & (rests < REST)[None, :]
    if REST > 0:
        rest_source = (qkv_at + row * qkv_stride + (first + head) * DIM + 2 * HALF)[:, None] + rests[None, :]
        rest = tl.load(rest_source, mask=kept_rest, other=0.0).to(tl.float32)
    if FACTORS:
        row_factors = tl.load(row_factors_at + row, mask=kept, other=0.0)[:, None]
        factors_at = (column_factors_at + (first + head) * DIM)[:, None]
        low *= row_factors * tl.load(factors_at + dims[None, :], mask=kept_half, other=0.0)
        high *= row_factors * tl.load(factors_at + HALF + dims[None, :], mask=kept_half, other=0.0)
        if REST > 0:
            rest *= row_factors * tl.load(factors_at + 2 * HALF + rests[None, :], mask=kept_rest, other=0.0)
    if not is_value:
        if NORM:
            squares = tl.sum(low * low + high * high, axis=1)
            if REST > 0:
                squares += tl.sum(rest * rest, axis=1)
            factor = tl.rsqrt(squares / DIM + eps)[:, None]
            weight_at = query_norm_at if is_query else key_norm_at
            low *= factor * tl.load(weight_at + dims, mask=dims < HALF, other=0.0).to(tl.float32)[None, :]
            high *= (
                factor * tl.load(weight_at + HALF + dims, mask=dims < HALF, other=0.0).to(tl.float32)[None, :]
            )
            if REST > 0:
                rest *= (
                    factor
                    * tl.load(weight_at + 2 * HALF + rests, mask=rests < REST, other=0.0).to(tl.float32)[
                        None, :
                    ]
                )
        if ROTATE:
            angles = (position * HALF)[:, None] + dims[None, :]
            cos = tl.load(cos_at + angles, mask=kept_half, other=0.0)
            sin = tl.load(sin_at + angles, mask=kept_half, other=0.0)
            low, high = low * cos - high * sin, high * cos + low * sin
    if is_query:
        tl.store(source, low.to(qkv_at.dtype.element_ty), mask=kept_half)
        tl.store(source + HALF, high.to(qkv_at.dtype.element_ty), mask=kept_half)
        if REST > 0 and (NORM or FACTORS):
            tl.store(rest_source, rest.to(qkv_at.dtype.element_ty), mask=kept_rest)
    else:
        block, offset = place // BLOCK_SIZE, place % BLOCK_SIZE
        if SCALED:
            largest = tl.max(tl.maximum(tl.abs(low), tl.abs(high)), axis=1)
            if REST > 0:
                largest = tl.maximum(largest, tl.max(tl.abs(rest), axis=1))
            scale = fp8_scale(largest)
            scales_at = value_scales_at if is_value else key_scales_at
            tl.store(
                scales_at + block * scale_block_stride + head * scale_head_stride + offset, scale, mask=kept
            )
            low, high = to_fp8(low, scale[:, None], tl.float32), to_fp8(high, scale[:, None], tl.float32)
            if REST > 0:
                rest = to_fp8(rest, scale[:, None], tl.float32)
        cache_at = values_at if is_value else keys_at
        target = (cache_at + block * block_stride + head * head_stride + offset * token_stride)[:, None]
        tl.store(target + dims[None, :], low.to(keys_at.dtype.element_ty), mask=kept_half)
        tl.store(target + HALF + dims[None, :], high.to(keys_at.dtype.element_ty), mask=kept_half)
        if REST > 0:
            tl.store(target + 2 * HALF + rests[None, :], rest.to(keys_at.dtype.element_ty), mask=kept_rest)


def rotate_and_store(
    qkv: Tensor,
    layer: PagedLayer,
    positions: Tensor,
    places: Tensor,
    *,
    heads: int,
    kv_heads: int,
    cos: Tensor | None,
    sin: Tensor | None,
    query_norm: Tensor | None = None,
    key_norm: Tensor | None = None,
    eps: float = 0.0,
    factors: Factors | None = None,
) -> None:
    """Norm and rotate the queries in place; norm and rotate keys into the cache, and values as they are.

    qkv: [rows, (heads + 2 kv_heads) * head size]; places: block * block size + offset of each row.
    Factors are those of qkv; the queries in place have been multiplied by them.
    """
    rows, dim = qkv.shape[0], layer.head_dim
    if rows == 0:
        return
    half = dim // 2 if cos is None else cos.shape[1]
    norm = query_norm is not None
    shape = choose_shape(rows)
    scales = layer.key_scales
    groups = ceil_div(heads, shape.heads) + 2 * ceil_div(kv_heads, shape.heads)
    _rotate_and_store[(ceil_div(rows, shape.rows), groups)](
        qkv,
        *((None, None) if factors is None else factors),
        layer.keys,
        layer.values,
        scales,
        layer.value_scales,
        positions,
        places,
        cos,
        sin,
        query_norm,
        key_norm,
        rows,
        qkv.stride(0),
        *layer.keys.stride()[:3],
        *(scales.stride()[:2] if scales is not None else (0, 0)),
        eps,
        HEADS=heads,
        KV_HEADS=kv_heads,
        DIM=dim,
        HALF=half,
        FACTORS=factors is not None,
        ROTATE=cos is not None,
        NORM=norm,
        SCALED=scales is not None,
        BLOCK_SIZE=layer.block_size,
        ROWS=shape.rows,
        GROUP=shape.heads,
        HALF_BLOCK=power_of_two(half),
        REST_BLOCK=power_of_two(max(dim - 2 * half, 1)),
        num_warps=shape.warps,
        **overlapped(),
    )
