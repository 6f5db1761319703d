"""Attention of prompt chunks over the paged cache, causal, many sequences in one launch.

The heads of a group share keys and values, so a tile's rows are queries times heads of the group: row r is
query r // group, head r % group. What every row of a tile sees is read without a mask; a mask is computed
only where the diagonal or the window's edge runs through, and only the last keys of a sequence are guarded
against what lies behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from penstock.engine.gpu.batch import ChunkBatch
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.kernels import chunk_hopper, chunk_widen
from penstock.engine.gpu.kernels.numbers import HIDDEN, LOG2E, ceil_div, power_of_two

CHUNK_TILE = 128  # queries; a program takes as many of them as fit its rows with all heads of a group


@dataclass(frozen=True, slots=True)
class Shape:
    """How a launch is cut. `block_n` divides the block size where the copy engine loads the tiles."""

    block_m: int  # rows: queries times heads of a group
    block_n: int  # keys
    warps: int
    stages: int
    bulk: bool  # tiles come through the copy engine rather than through pointers


def chunk_tiles(starts: Sequence[int], counts: Sequence[int]) -> list[tuple[int, int]]:
    """(sequence, first of its queries) of each tile, those that see most first: a long tile that begins last
    would run alone."""
    tiles = [
        (start + min(first + CHUNK_TILE, count), sequence, first)
        for sequence, (start, count) in enumerate(zip(starts, counts, strict=True))
        for first in range(0, count, CHUNK_TILE)
    ]
    tiles.sort(key=lambda tile: -tile[0])
    return [(sequence, first) for _, sequence, first in tiles]


def choose_shape(query: Tensor, layer: PagedLayer) -> Shape:
    if query.dtype == torch.float32:
        return Shape(32, 16, 8, 2, False)  # larger ones spill: no matrix unit takes float32 as it is
    block_n = 32 if layer.head_dim > 128 else 64
    copied = not query.is_cuda or torch.cuda.get_device_capability(query.device)[0] >= 9
    if layer.block_size % block_n or layer.key_scales is not None or not copied:
        return Shape(128, block_n, 8, 2, False)
    return Shape(128, block_n, 8, 3, True)


def attend_chunks(
    query: Tensor,
    layer: PagedLayer,
    batch: ChunkBatch,
    *,
    scale: float,
    softcap: float | None = None,
    window: int | None = None,
    out: Tensor,
) -> None:
    """Rows of `batch`'s chunks in `query` [rows, heads, dim] and `out` [rows, heads * dim]; other rows of
    `out` stay as they are. The chunks' own keys and values are in the cache already."""
    heads, head_dim = query.shape[1], query.shape[2]
    if chunk_hopper.fits(query, layer):
        if layer.key_scales is not None and chunk_widen.pays(query, layer, batch):
            layer, batch = chunk_widen.widen(layer, batch, query.dtype)
        if layer.keys.dtype == query.dtype:
            chunk_hopper.attend(
                query, layer, batch, CHUNK_TILE, scale=scale, softcap=softcap, window=window, out=out
            )
            return
    group = heads // layer.kv_heads
    shape = choose_shape(query, layer)
    block_m = max(shape.block_m, power_of_two(group))
    padded = power_of_two(head_dim)
    queries = block_m // group
    pieces = ceil_div(CHUNK_TILE, queries)
    keys: Any = layer.keys
    values: Any = layer.values
    if shape.bulk:
        rows = (-1, head_dim)
        tile = [shape.block_n, padded]
        keys = TensorDescriptor.from_tensor(layer.keys.view(rows), tile)
        values = TensorDescriptor.from_tensor(layer.values.view(rows), tile)
    _attend[(batch.tiles.shape[0] * pieces * layer.kv_heads,)](
        query,
        keys,
        values,
        layer.key_scales,
        layer.value_scales,
        out,
        batch.slots,
        batch.starts,
        batch.counts,
        batch.rows,
        batch.tiles,
        batch.tables,
        query.stride(0),
        query.stride(1),
        out.stride(0),
        batch.tables.stride(0),
        scale,
        softcap or 0.0,
        window or 0,
        KV_HEADS=layer.kv_heads,
        GROUP=group,
        DIM=head_dim,
        PADDED=padded,
        BLOCK_SIZE=layer.block_size,
        BLOCK_M=block_m,
        BLOCK_N=shape.block_n,
        QUERIES=queries,
        PIECES=pieces,
        TILE=CHUNK_TILE,
        BULK=shape.bulk,
        CAPPED=softcap is not None,
        WINDOWED=window is not None,
        num_warps=shape.warps,
        num_stages=shape.stages,
    )


@triton.jit
def _load(
    source, table, begin, length, kv_head, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, BULK: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Keys or values of positions begin ... begin + BLOCK_N. The last tile has zeros behind `length`."""
    at = begin + tl.arange(0, BLOCK_N)
    if BULK:
        block = tl.load(table + begin // BLOCK_SIZE)
        tile = source.load([(block * KV_HEADS + kv_head) * BLOCK_SIZE + begin % BLOCK_SIZE, 0])
        if LAST:
            tile = tl.where((at < length)[:, None], tile, tl.zeros_like(tile))
    else:
        dims = tl.arange(0, PADDED)
        if BLOCK_SIZE % BLOCK_N == 0:
            blocks = tl.load(table + begin // BLOCK_SIZE).to(tl.int64)
        elif LAST:
            blocks = tl.load(table + at // BLOCK_SIZE, mask=at < length, other=0).to(tl.int64)
        else:
            blocks = tl.load(table + at // BLOCK_SIZE).to(tl.int64)
        places = (blocks * KV_HEADS + kv_head) * BLOCK_SIZE + at % BLOCK_SIZE
        pointers = source + places[:, None] * DIM + dims[None, :]
        if LAST:
            tile = tl.load(pointers, mask=(at < length)[:, None] & (dims < DIM)[None, :], other=0.0)
        elif PADDED != DIM:
            tile = tl.load(pointers, mask=(dims < DIM)[None, :], other=0.0)
        else:
            tile = tl.load(pointers)
    return tile


@triton.jit
def _load_scales(
    scales, table, begin, length, kv_head, KV_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    at = begin + tl.arange(0, BLOCK_N)
    inside = at < length
    blocks = tl.load(table + at // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)
    return tl.load(
        scales + (blocks * KV_HEADS + kv_head) * BLOCK_SIZE + at % BLOCK_SIZE, mask=inside, other=0.0
    )


@triton.jit
def _span(
    total, top, weight, query, keys, values, key_scales, value_scales, table, positions, low, high, length,
    kv_head, scale, softcap, window, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, BULK: tl.constexpr, SCALED: tl.constexpr,
    CAPPED: tl.constexpr, WINDOWED: tl.constexpr, MASKED: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """Take in the keys low ... high, whole tiles. `total` is the sum of values by weight, `weight` the sum of
    weights, both relative to `top`, the largest score so far in units of log2."""
    for begin in tl.range(low, high, BLOCK_N):
        key = _load(
            keys, table, begin, length, kv_head, KV_HEADS, DIM, PADDED, BLOCK_SIZE, BLOCK_N, BULK, LAST
        )
        scores = tl.dot(query, key.to(query.dtype).T, input_precision="ieee")
        if SCALED:
            scores *= _load_scales(key_scales, table, begin, length, kv_head, KV_HEADS, BLOCK_SIZE, BLOCK_N)[
                None, :
            ]
        if CAPPED:
            # tanh x = 1 - 2 / (1 + e^2x); `scale` comes divided by the cap, times 2 log2 e.
            scores = softcap * (1.0 - 2.0 / (1.0 + tl.exp2(scores * scale)))
            unit = LOG2E
        else:
            unit = scale
        if MASKED:
            at = begin + tl.arange(0, BLOCK_N)
            seen = at[None, :] <= positions[:, None]
            if WINDOWED:
                seen &= at[None, :] > positions[:, None] - window
            scores = tl.where(seen, scores, HIDDEN)
        above = tl.maximum(top, tl.max(scores, 1) * unit)
        weights = tl.exp2(scores * unit - above[:, None])
        shrink = tl.exp2(top - above)
        weight = weight * shrink + tl.sum(weights, 1)
        total = total * shrink[:, None]
        if SCALED:
            weights *= _load_scales(
                value_scales, table, begin, length, kv_head, KV_HEADS, BLOCK_SIZE, BLOCK_N
            )[None, :]
        value = _load(
            values, table, begin, length, kv_head, KV_HEADS, DIM, PADDED, BLOCK_SIZE, BLOCK_N, BULK, LAST
        )
        total = tl.dot(weights.to(query.dtype), value.to(query.dtype), total, input_precision="ieee")
        top = above
    return total, top, weight


@triton.jit
def _attend(
    query, keys, values, key_scales, value_scales, out, slots, starts, counts, rows, tiles, tables,
    query_stride, head_stride, out_stride, table_stride, scale, softcap, window,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, QUERIES: tl.constexpr,
    PIECES: tl.constexpr, TILE: tl.constexpr, BULK: tl.constexpr, CAPPED: tl.constexpr,
    WINDOWED: tl.constexpr,
):  # fmt: skip
    # Programs that run at the same time read the same sequence, its heads side by side.
    program = tl.program_id(0)
    kv_head = program % KV_HEADS
    piece = PIECES - 1 - program // KV_HEADS % PIECES
    tile = program // (KV_HEADS * PIECES)
    sequence = tl.load(tiles + 2 * tile)
    first = tl.load(tiles + 2 * tile + 1)
    count = tl.load(counts + sequence)
    stop = tl.minimum(first + TILE, count)
    first += piece * QUERIES
    if first >= stop:
        return
    start = tl.load(starts + sequence)
    table = tables + tl.load(slots + sequence).to(tl.int64) * table_stride

    row = tl.arange(0, BLOCK_M)
    own = first + row // GROUP
    head = kv_head * GROUP + row % GROUP
    dims = tl.arange(0, PADDED)
    real = (row < QUERIES * GROUP) & (own < stop)
    mask = real[:, None] & (dims < DIM)[None, :]
    at = (tl.load(rows + sequence) + own).to(tl.int64)
    queries = tl.load(
        query + at[:, None] * query_stride + (head * head_stride)[:, None] + dims[None, :],
        mask=mask,
        other=0.0,
    )
    positions = start + own

    length = start + count
    seen = start + tl.minimum(first + QUERIES, stop)  # keys that the last row sees
    clear = (start + first + 1) // BLOCK_N * BLOCK_N  # whole tiles that the first row sees, and so all
    last = length // BLOCK_N * BLOCK_N  # the tile that begins here holds keys behind the sequence's end
    edge = tl.cdiv(seen, BLOCK_N) * BLOCK_N
    bound = tl.minimum(edge, last)
    low = 0
    if CAPPED:
        unit = scale / softcap * (2 * LOG2E)
    else:
        unit = scale * LOG2E

    total = tl.zeros([BLOCK_M, PADDED], tl.float32)
    top = tl.full([BLOCK_M], HIDDEN, tl.float32)
    weight = tl.zeros([BLOCK_M], tl.float32)
    SCALED: tl.constexpr = key_scales is not None
    if WINDOWED:
        low = tl.maximum(start + first - window + 1, 0) // BLOCK_N * BLOCK_N
        inner = tl.cdiv(tl.maximum(seen - window, 0), BLOCK_N) * BLOCK_N  # from here on no window ends
        inner = tl.minimum(tl.maximum(inner, low), clear)
        total, top, weight = _span(
            total, top, weight, queries, keys, values, key_scales, value_scales, table, positions, low, inner,
            length, kv_head, unit, softcap, window, KV_HEADS, DIM, PADDED, BLOCK_SIZE, BLOCK_N, BULK, SCALED,
            CAPPED, WINDOWED, True, False,
        )  # fmt: skip
        low = inner
    total, top, weight = _span(
        total, top, weight, queries, keys, values, key_scales, value_scales, table, positions, low, clear,
        length, kv_head, unit, softcap, window, KV_HEADS, DIM, PADDED, BLOCK_SIZE, BLOCK_N, BULK, SCALED,
        CAPPED, WINDOWED, False, False,
    )  # fmt: skip
    total, top, weight = _span(
        total, top, weight, queries, keys, values, key_scales, value_scales, table, positions,
        tl.maximum(low, clear), bound, length, kv_head, unit, softcap, window, KV_HEADS, DIM, PADDED,
        BLOCK_SIZE, BLOCK_N, BULK, SCALED, CAPPED, WINDOWED, True, False,
    )  # fmt: skip
    total, top, weight = _span(
        total, top, weight, queries, keys, values, key_scales, value_scales, table, positions, bound, edge,
        length, kv_head, unit, softcap, window, KV_HEADS, DIM, PADDED, BLOCK_SIZE, BLOCK_N, BULK, SCALED,
        CAPPED, WINDOWED, True, True,
    )  # fmt: skip

    result = (total / weight[:, None]).to(out.dtype.element_ty)
    tl.store(out + at[:, None] * out_stride + (head * DIM)[:, None] + dims[None, :], result, mask=mask)
