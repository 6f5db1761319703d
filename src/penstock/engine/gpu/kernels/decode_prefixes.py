"""Attention over prefixes that sequences share: one read of keys and values serves the queries of many.

The queries of up to `TILE_MEMBERS` sequences for one KV head are the rows of ordinary attention. What comes
out is partial: each sequence merges it with what it sees alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.batch import TILE_MEMBERS, DecodeBatch, SharedPrefixes
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.kernels.decode_tiles import LEAST_ROWS, TYPES, VALUE_FACTOR
from penstock.engine.gpu.kernels.launch import overlapped
from penstock.engine.gpu.kernels.numbers import LOG2E, power_of_two


@dataclass(frozen=True, slots=True)
class PrefixShape:
    tile: int  # tokens read at once
    rows: int  # queries of a program at most
    warps: int
    stages: int


def choose_prefix_shape(layer: PagedLayer) -> PrefixShape:
    if layer.keys.dtype == torch.float32:
        return PrefixShape(tile=32, rows=16, warps=8, stages=2)
    if layer.head_dim > 128:
        return PrefixShape(tile=32, rows=64, warps=8, stages=2)
    return PrefixShape(tile=64, rows=64, warps=4, stages=3)


def choose_shared_splits(tiles: int, kv_heads: int, longest: int, processors: int) -> int:
    """Pieces that prefixes of at most `longest` tokens are cut into: a power of two. Two programs share a
    processor, so that one computes while the other waits for memory."""
    splits = 1
    while splits * tiles * kv_heads <= processors and splits * 128 < longest:
        splits *= 2
    return splits


def attend_prefixes(
    query: Tensor,
    layer: PagedLayer,
    batch: DecodeBatch,
    shared: SharedPrefixes,
    accumulators: Tensor,
    bounds: Tensor,
    *,
    scale: float,
    softcap: float | None,
    window: int | None,
) -> None:
    """Partial results of all pieces of all prefixes, for each sequence that has one: float32 accumulators
    [sequences, heads, splits, padded head size], and bounds [..., 2]: maximum and sum of the weights."""
    _, heads, dim = query.shape
    shape = choose_prefix_shape(layer)
    scaled = layer.key_scales is not None
    group = heads // layer.kv_heads
    wide = power_of_two(group)
    members = max(1, min(TILE_MEMBERS, shape.rows // wide))
    # Not `launch_pdl`: the next kernel begins early, and relies on everything before this one.
    _attend_prefixes[(shared.slots.shape[0] * (TILE_MEMBERS // members), layer.kv_heads, shared.splits)](
        query,
        query.stride(0),
        query.stride(1),
        layer.keys,
        layer.values,
        layer.key_scales,
        layer.value_scales,
        batch.tables,
        batch.tables.stride(0),
        batch.lengths,
        shared.members,
        shared.slots,
        shared.spans,
        accumulators,
        bounds,
        shared.splits,
        scale if softcap is not None else scale * LOG2E.value,
        softcap or 1.0,
        PDL=overlapped()["PDL"],
        MEMBERS=members,
        TILE_MEMBERS=TILE_MEMBERS,
        KV_HEADS=layer.kv_heads,
        GROUP=group,
        WIDE=wide,
        ROWS=max(LEAST_ROWS, members * wide),
        DIM=dim,
        PADDED=power_of_two(dim),
        BLOCK=layer.block_size,
        TILE=shape.tile,
        SCALED=scaled,
        TYPE=tl.float16 if scaled else TYPES[layer.keys.dtype],
        CAPPED=softcap is not None,
        WINDOW=window or 0,
        num_warps=shape.warps,
        num_stages=shape.stages,
    )


@triton.jit(do_not_specialize=["splits"])
def _attend_prefixes(
    query,
    query_row,
    query_head,
    keys,
    values,
    key_scales,
    value_scales,
    tables,
    table_row,
    lengths,
    members,
    slots,
    spans,
    accumulators,
    bounds,
    splits,
    scale,
    softcap,
    PDL: tl.constexpr,
    MEMBERS: tl.constexpr,
    TILE_MEMBERS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    SCALED: tl.constexpr,
    TYPE: tl.constexpr,
    CAPPED: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """One piece of a prefix, for the queries of MEMBERS sequences that share one KV head."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()  # what sequences see alone can be read at the same time
    tile_of_members = tl.program_id(0) * MEMBERS // TILE_MEMBERS
    head = tl.program_id(1)
    split = tl.program_id(2)
    span = tl.load(spans + tile_of_members)
    table = tables + tl.load(slots + tile_of_members).to(tl.int64) * table_row
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, PADDED)
    offsets = tl.arange(0, TILE)
    member = rows // WIDE
    sequence = tl.load(members + tl.program_id(0) * MEMBERS + member, mask=member < MEMBERS, other=-1)
    if (span == 0) | (tl.max(sequence, 0) < 0):
        return
    inside = (sequence >= 0) & (rows % WIDE < GROUP)
    heads = head * GROUP + rows % WIDE
    first = tl.zeros((ROWS,), tl.int32)
    if WINDOW > 0:
        first = tl.load(lengths + sequence, mask=inside, other=0) - WINDOW
    tiles = tl.cdiv(span, TILE)
    stretch = tl.cdiv(tiles, splits)
    begin = split * stretch
    end = tl.minimum(begin + stretch, tiles)

    query_places = sequence.to(tl.int64) * query_row + heads * query_head
    wanted = inside[:, None] & (dims < DIM)[None, :]
    queries = tl.load(query + query_places[:, None] + dims[None, :], mask=wanted, other=0.0).to(TYPE)
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    sums = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, PADDED), tl.float32)
    # The table's entry is loaded one tile ahead, so that a tile's address never waits for memory.
    if TILE <= BLOCK:
        block = tl.load(table + begin * TILE // BLOCK, mask=begin < end, other=0)
    else:
        there = begin * TILE + offsets
        block = tl.load(table + there // BLOCK, mask=there < span, other=0)
    for tile in range(begin, end):
        positions = tile * TILE + offsets
        seen = positions < span  # a prefix is whole blocks, so this matters only where a tile is several
        if TILE <= BLOCK:
            places = (block.to(tl.int64) * KV_HEADS + head) * BLOCK + tile * TILE % BLOCK + offsets
            block = tl.load(table + (tile + 1) * TILE // BLOCK, mask=tile + 1 < end, other=0)
        else:
            places = (block.to(tl.int64) * KV_HEADS + head) * BLOCK + offsets % BLOCK
            following = positions + TILE
            block = tl.load(table + following // BLOCK, mask=following < span, other=0)
        mask = (dims < DIM)[None, :]
        if TILE > BLOCK:
            mask = mask & seen[:, None]
        key = tl.load(keys + (places[:, None] * DIM + dims[None, :]), mask=mask, other=0.0).to(TYPE)
        scores = tl.dot(queries, tl.trans(key), input_precision="ieee")
        if SCALED:
            scores *= _load_scales(key_scales + places, seen, TILE > BLOCK)[None, :]
        # Scores times `unit` are powers of two.
        unit = scale
        if CAPPED:
            # tanh(x) = 1 - 2 / (exp(2 x) + 1)
            scores = 1.0 - 2.0 / (tl.exp2(scores * (scale * 2.0 * LOG2E / softcap)) + 1.0)
            unit = softcap * LOG2E
        if TILE > BLOCK:
            scores = tl.where(seen[None, :], scores, float("-inf"))
        if WINDOW > 0:
            scores = tl.where(positions[None, :] >= first[:, None], scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1) * unit)
        # A row that has seen nothing yet has no maximum to subtract.
        reference = tl.where(higher == float("-inf"), 0.0, higher) if WINDOW > 0 else higher
        decay = tl.exp2(best - reference)
        weights = tl.exp2(scores * unit - reference[:, None])
        best = higher
        sums = sums * decay + tl.sum(weights, 1)
        if SCALED:
            weights *= (_load_scales(value_scales + places, seen, TILE > BLOCK) * VALUE_FACTOR)[None, :]
        value = tl.load(values + (places[:, None] * DIM + dims[None, :]), mask=mask, other=0.0).to(TYPE)
        total = tl.dot(weights.to(TYPE), value, total * decay[:, None], input_precision="ieee")
    if SCALED:
        total *= 1.0 / VALUE_FACTOR

    out_places = (sequence * (KV_HEADS * GROUP) + heads) * splits + split
    tl.store(
        accumulators + out_places.to(tl.int64)[:, None] * PADDED + dims[None, :],
        total,
        mask=inside[:, None],
    )
    tl.store(bounds + out_places * 2, best, mask=inside)
    tl.store(bounds + out_places * 2 + 1, sums, mask=inside)


@triton.jit
def _load_scales(places, seen, MASKED: tl.constexpr):
    if MASKED:
        return tl.load(places, mask=seen, other=0.0)
    else:
        return tl.load(places)
