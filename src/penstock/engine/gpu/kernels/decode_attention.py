"""Attention of sequences with one query each over their paged cache, bound by memory alone.

What all sequences see is one line of tiles (sequence by sequence, head by head), cut into equal stretches:
every program reads as many bytes as every other, whatever the lengths, so one captured launch serves all.
Where a stretch ends within a head, its partial result is left in the workspace, and the last program to
arrive merges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.batch import TILE_MEMBERS, DecodeBatch
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.kernels.decode_tiles import LEAST_ROWS, add_partials, load_queries, read_tiles

TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
LOG2_E = 1.4426950408889634
MERGED_AT_ONCE = 8  # partial results that a merge holds in registers
MOST_PROGRAMS = 8  # for each processor


@dataclass(frozen=True, slots=True)
class Shape:
    """How a launch is laid out, chosen by the bytes of a token as measured on an H200."""

    tile: int  # tokens read at once
    warps: int
    stages: int
    programs: int  # for each processor
    rows: int  # queries of a tile over a shared prefix


@dataclass(frozen=True, slots=True)
class Workspace:
    """Partial results of a launch; the next launch on the stream may use it again."""

    accumulators: Tensor  # float32 [2 pieces a program, heads, padded head size]
    bounds: Tensor  # float32 [as above, 2] maximum and sum of the weights
    shared_accumulators: Tensor  # float32 [rows, heads, splits, padded head size]
    shared_bounds: Tensor
    arrivals: Tensor  # int32 [rows, heads], zero between launches


def choose_shape(layer: PagedLayer) -> Shape:
    if layer.keys.dtype == torch.float32:
        return Shape(tile=32, warps=8, stages=2, programs=4, rows=16)
    if layer.head_dim > 128:
        return Shape(tile=32, warps=4, stages=3, programs=4, rows=64)
    return Shape(tile=64, warps=4, stages=3, programs=4, rows=64)


@cache
def processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def choose_splits(sequences: int, kv_heads: int, longest: int, processors: int) -> int:
    """The most programs for a KV head of a sequence: a power of two, which lets a small batch launch few."""
    splits = 1
    while splits * sequences * kv_heads < 4 * processors and splits * 64 < longest:
        splits *= 2
    return splits


def choose_shared_splits(tiles: int, kv_heads: int, longest: int, processors: int) -> int:
    """Pieces that prefixes of at most `longest` tokens are cut into: a power of two."""
    splits = 1
    while splits * tiles * kv_heads < processors and splits * 128 < longest:
        splits *= 2
    return splits


def workspace(rows: int, heads: int, head_dim: int, splits: int, device: torch.device) -> Workspace:
    padded = triton.next_power_of_2(head_dim)
    pieces = 2 * MOST_PROGRAMS * processors(device)

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=device)

    return Workspace(
        empty(pieces, heads, padded),
        empty(pieces, heads, 2),
        empty(rows, heads, splits, padded),
        empty(rows, heads, splits, 2),
        torch.zeros(rows, heads, dtype=torch.int32, device=device),
    )


def attend_decodes(
    query: Tensor,
    layer: PagedLayer,
    batch: DecodeBatch,
    *,
    scale: float,
    softcap: float | None = None,
    window: int | None = None,
    room: Workspace,
    out: Tensor,
    shape: Shape | None = None,
) -> None:
    """out [sequences, heads * dim] = what each query of [sequences, heads, dim] attends to."""
    sequences, heads, dim = query.shape
    shape = shape or choose_shape(layer)
    shared = batch.shared
    scaled = layer.key_scales is not None
    group = heads // layer.kv_heads
    wide = triton.next_power_of_2(group)
    constants = {
        "KV_HEADS": layer.kv_heads,
        "GROUP": group,
        "DIM": dim,
        "PADDED": triton.next_power_of_2(dim),
        "BLOCK": layer.block_size,
        "TILE": shape.tile,
        "SCALED": scaled,
        "TYPE": tl.float16 if scaled else TYPES[layer.keys.dtype],
        "CAPPED": softcap is not None,
        "WINDOW": window or 0,
        "num_warps": shape.warps,
        "num_stages": shape.stages,
    }
    inputs = (
        query,
        query.stride(0),
        query.stride(1),
        layer.keys.view(torch.int16) if scaled else layer.keys,
        layer.values.view(torch.int16) if scaled else layer.values,
        layer.key_scales,
        layer.value_scales,
        batch.tables,
        batch.tables.stride(0),
        batch.lengths,
    )
    numbers = (scale if softcap is not None else scale * LOG2_E, softcap or 1.0)
    if shared is not None:
        members = max(1, min(TILE_MEMBERS, shape.rows // wide))
        _attend_shared[(shared.slots.shape[0] * (TILE_MEMBERS // members), layer.kv_heads, shared.splits)](
            *inputs,
            shared.members,
            shared.slots,
            shared.spans,
            room.shared_accumulators,
            room.shared_bounds,
            shared.splits,
            *numbers,
            MEMBERS=members,
            TILE_MEMBERS=TILE_MEMBERS,
            WIDE=wide,
            ROWS=max(LEAST_ROWS, members * wide),
            **constants,
        )
    programs = min(shape.programs * processors(query.device), sequences * layer.kv_heads * batch.splits)
    _attend_own[(programs,)](
        *inputs,
        batch.slots,
        shared.lengths if shared is not None else None,
        out,
        room.accumulators,
        room.bounds,
        room.shared_accumulators,
        room.shared_bounds,
        room.arrivals,
        sequences,
        shared.splits if shared is not None else 0,
        *numbers,
        SHARED=shared is not None,
        MOST_SEQUENCES=16 if sequences <= 16 else max(256, triton.next_power_of_2(sequences)),
        PIECES=MERGED_AT_ONCE,
        WIDE=wide,
        ROWS=max(LEAST_ROWS, wide),
        **constants,
    )


@triton.jit(do_not_specialize=["sequences", "shared_splits"])
def _attend_own(
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
    slots,
    shared_lengths,
    out,
    accumulators,
    bounds,
    shared_accumulators,
    shared_bounds,
    arrivals,
    sequences,
    shared_splits,
    scale,
    softcap,
    SHARED: tl.constexpr,
    MOST_SEQUENCES: tl.constexpr,
    PIECES: tl.constexpr,
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
    HEADS: tl.constexpr = KV_HEADS * GROUP
    program = tl.program_id(0)
    dims = tl.arange(0, PADDED)
    rows = tl.arange(0, ROWS)
    heads = tl.arange(0, WIDE)

    # Every program finds its stretch of the line from all lengths. Padding has one tile, an empty one.
    everyone = tl.arange(0, MOST_SEQUENCES)
    there = everyone < sequences
    seen = tl.load(lengths + everyone, mask=there, other=0)
    start = tl.zeros((MOST_SEQUENCES,), tl.int32)
    if SHARED:
        start = tl.load(shared_lengths + everyone, mask=there, other=0)
    if WINDOW > 0:
        start = tl.maximum(start, seen - WINDOW)
    tiles = tl.where(there, tl.maximum(tl.cdiv(seen, TILE) - start // TILE, 1), 0) * KV_HEADS
    ends = tl.cumsum(tiles, 0)
    every = tl.sum(tiles, 0)
    stretch = tl.cdiv(every, tl.num_programs(0))
    at = program * stretch
    stop = tl.minimum(at + stretch, every)
    before = tl.max(tl.where(ends <= at, ends, 0), 0)  # tiles of earlier sequences
    sequence = tl.sum((ends <= at).to(tl.int32), 0)

    while at < stop:
        length = tl.load(lengths + sequence)
        first = 0
        shared = 0
        if SHARED:
            shared = tl.load(shared_lengths + sequence)
            first = shared
        if WINDOW > 0:
            first = tl.maximum(first, length - WINDOW)
        first_tile = first // TILE
        count = tl.maximum(tl.cdiv(length, TILE) - first_tile, 1)
        head = (at - before) // count
        line = before + head * count  # where this head's tiles begin
        begin = at - line
        end = tl.minimum(count, stop - line)

        table = tables + tl.load(slots + sequence).to(tl.int64) * table_row
        query_places = sequence.to(tl.int64) * query_row + (head * GROUP + rows) * query_head
        queries = load_queries(query, query_places, rows < GROUP, DIM, PADDED, SCALED, TYPE)
        total, best, sums = read_tiles(
            queries,
            keys,
            values,
            key_scales,
            value_scales,
            table,
            head,
            first_tile + begin,
            tl.minimum(first_tile + end, tl.cdiv(length, TILE)),
            first,
            length,
            scale,
            softcap,
            KV_HEADS,
            DIM,
            PADDED,
            BLOCK,
            TILE,
            ROWS,
            SCALED,
            CAPPED,
            SHARED or WINDOW > 0,
        )

        out_places = (sequence.to(tl.int64) * HEADS + head * GROUP) * DIM
        from_program = line // stretch
        pieces = (line + count - 1) // stretch - from_program + 1
        if (pieces == 1) & (shared == 0):
            tl.store(
                out + out_places + rows[None, :] * DIM + dims[:, None],
                total / tl.where(sums == 0.0, 1.0, sums)[None, :],
                mask=(rows < GROUP)[None, :] & (dims < DIM)[:, None],
            )
        else:
            # A program leaves at most two pieces: of a head that it begins, and of one begun before it.
            piece = (2 * program + (begin == 0)) * GROUP + rows
            tl.store(
                accumulators + piece[None, :] * PADDED + dims[:, None], total, mask=(rows < GROUP)[None, :]
            )
            tl.store(bounds + piece * 2, best, mask=rows < GROUP)
            tl.store(bounds + piece * 2 + 1, sums, mask=rows < GROUP)
            tl.debug_barrier()  # all threads have written before one of them says so
            arrival = arrivals + sequence * KV_HEADS + head
            if tl.atomic_add(arrival, 1, sem="acq_rel") == pieces - 1:
                tl.store(arrival, 0)
                merged = tl.zeros((WIDE, PADDED), tl.float32)
                highest = tl.full((WIDE,), float("-inf"), tl.float32)
                weight = tl.zeros((WIDE,), tl.float32)
                batch = tl.arange(0, PIECES)[:, None]
                for origin in range(0, pieces, PIECES):
                    number = origin + batch
                    places = (2 * (from_program + number) + (number == 0)) * GROUP + heads[None, :]
                    mask = (number < pieces) & (heads < GROUP)[None, :]
                    merged, highest, weight = add_partials(
                        merged, highest, weight, accumulators, bounds, places, mask, PADDED
                    )
                if SHARED:
                    row = (sequence * HEADS + head * GROUP + heads[None, :]) * shared_splits
                    for origin in range(0, tl.where(shared > 0, shared_splits, 0), PIECES):
                        number = origin + batch
                        mask = (number < shared_splits) & (heads < GROUP)[None, :]
                        merged, highest, weight = add_partials(
                            merged,
                            highest,
                            weight,
                            shared_accumulators,
                            shared_bounds,
                            row + number,
                            mask,
                            PADDED,
                        )
                tl.store(
                    out + out_places + heads[:, None] * DIM + dims[None, :],
                    merged / tl.where(weight == 0.0, 1.0, weight)[:, None],
                    mask=(heads < GROUP)[:, None] & (dims < DIM)[None, :],
                )
        at = line + end
        if at == before + count * KV_HEADS:
            before = at
            sequence += 1


@triton.jit(do_not_specialize=["splits"])
def _attend_shared(
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
    tile = tl.program_id(0) * MEMBERS // TILE_MEMBERS
    head = tl.program_id(1)
    split = tl.program_id(2)
    span = tl.load(spans + tile)
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, PADDED)
    member = rows // WIDE
    sequence = tl.load(members + tl.program_id(0) * MEMBERS + member, mask=member < MEMBERS, other=-1)
    if (span == 0) | (tl.max(sequence, 0) < 0):
        return
    inside = (sequence >= 0) & (rows % WIDE < GROUP)
    heads = head * GROUP + rows % WIDE
    first = tl.zeros((ROWS,), tl.int32)
    if WINDOW > 0:
        first = tl.load(lengths + sequence, mask=inside, other=0) - WINDOW
    query_places = sequence.to(tl.int64) * query_row + heads * query_head
    queries = load_queries(query, query_places, inside, DIM, PADDED, SCALED, TYPE)
    tiles = tl.cdiv(span, TILE)
    stretch = tl.cdiv(tiles, splits)
    total, best, sums = read_tiles(
        queries,
        keys,
        values,
        key_scales,
        value_scales,
        tables + tl.load(slots + tile).to(tl.int64) * table_row,
        head,
        split * stretch,
        tl.minimum((split + 1) * stretch, tiles),
        first[None, :],
        span,
        scale,
        softcap,
        KV_HEADS,
        DIM,
        PADDED,
        BLOCK,
        TILE,
        ROWS,
        SCALED,
        CAPPED,
        WINDOW > 0,
    )
    places = (sequence * (KV_HEADS * GROUP) + heads) * splits + split
    tl.store(
        accumulators + places.to(tl.int64)[None, :] * PADDED + dims[:, None], total, mask=inside[None, :]
    )
    tl.store(bounds + places * 2, best, mask=inside)
    tl.store(bounds + places * 2 + 1, sums, mask=inside)
