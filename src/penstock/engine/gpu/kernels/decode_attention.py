"""Attention of sequences with one query each over their paged cache, bound by memory alone.

What all sequences see is one line of tiles (sequence by sequence, head by head), cut into equal stretches:
every program reads as many bytes as every other, whatever the lengths, so one captured launch serves all.
Where a stretch ends within a head, its partial result is left in the workspace, and the last program to
arrive merges. That costs more than reading a tile, so in a small batch stretches end with heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.batch import DecodeBatch
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.kernels.decode_merge import merge_pieces
from penstock.engine.gpu.kernels.decode_prefixes import attend_prefixes
from penstock.engine.gpu.kernels.decode_tiles import (
    LEAST_ROWS,
    LOG2_E,
    TYPES,
    load_queries,
    read_tiles,
)
from penstock.engine.gpu.kernels.launch import overlapped

MERGED_AT_ONCE = 8  # partial results that a merge holds in registers
MOST_PROGRAMS = 8  # for each processor
FEW_SEQUENCES = 16
WHOLE = 4  # tiles that are read sooner than partial results could be merged


@dataclass(frozen=True, slots=True)
class Shape:
    """How a launch is laid out, chosen by the bytes of a token as measured on an H200."""

    tile: int  # tokens read at once
    warps: int
    stages: int
    programs: int  # for each processor
    registers: int | None = None  # of a thread at most, where more programs would fit


@dataclass(frozen=True, slots=True)
class Workspace:
    """Partial results of a launch; the next launch on the stream may use it again."""

    accumulators: Tensor  # float32 [2 pieces a program, heads, padded head size]
    bounds: Tensor  # float32 [as above, 2] maximum and sum of the weights
    shared_accumulators: Tensor  # float32 [rows, heads, splits, padded head size]
    shared_bounds: Tensor
    arrivals: Tensor  # int32 [rows, heads], zero between launches


def choose_shape(layer: PagedLayer) -> Shape:
    """As many programs as a processor holds at once: more would only cut heads into more pieces."""
    if layer.keys.dtype == torch.float32:
        return Shape(tile=32, warps=8, stages=2, programs=4)
    if layer.head_dim > 128:
        return Shape(tile=32, warps=4, stages=3, programs=4)
    if layer.key_scales is not None:
        return Shape(tile=64, warps=4, stages=3, programs=4, registers=128)
    return Shape(tile=64, warps=4, stages=3, programs=2 if layer.head_dim > 64 else 4)


@cache
def processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


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
    scaled = layer.key_scales is not None
    group = heads // layer.kv_heads
    wide = triton.next_power_of_2(group)
    programs = shape.programs * processors(query.device)
    few = sequences <= FEW_SEQUENCES and 2 * sequences * layer.kv_heads <= programs
    shared = batch.shared
    if shared is not None:
        attend_prefixes(
            query, layer, batch, shared, room.shared_accumulators, room.shared_bounds,
            scale=scale, softcap=softcap, window=window,
        )  # fmt: skip
    _attend_own[(programs,)](
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
        scale if softcap is not None else scale * LOG2_E,
        softcap or 1.0,
        SHARED=shared is not None,
        ALIGNED=few,
        MOST_SEQUENCES=16 if sequences <= 16 else max(256, triton.next_power_of_2(sequences)),
        PIECES=MERGED_AT_ONCE,
        WHOLE=WHOLE,
        KV_HEADS=layer.kv_heads,
        GROUP=group,
        WIDE=wide,
        ROWS=max(LEAST_ROWS, wide),
        DIM=dim,
        PADDED=triton.next_power_of_2(dim),
        BLOCK=layer.block_size,
        TILE=shape.tile,
        SCALED=scaled,
        TYPE=tl.float16 if scaled else TYPES[layer.keys.dtype],
        CAPPED=softcap is not None,
        WINDOW=window or 0,
        num_warps=shape.warps,
        num_stages=shape.stages,
        **overlapped(),
        **({} if shape.registers is None else {"maxnreg": shape.registers}),
    )


@triton.jit
def _round_up(at, ends, tiles, WHOLE: tl.constexpr, MOST_SEQUENCES: tl.constexpr):
    """The place of the line at which a stretch may end: not within a short head, since behind a shared prefix
    most heads are."""
    before = tl.max(tl.where(ends <= at, ends, 0), 0)
    sequence = tl.sum((ends <= at).to(tl.int32), 0)
    count = tl.maximum(tl.sum(tl.where(tl.arange(0, MOST_SEQUENCES) == sequence, tiles, 0), 0), 1)
    beyond = (at - before) % count
    return tl.where((beyond > 0) & (count <= WHOLE), at - beyond + count, at)


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
    ALIGNED: tl.constexpr,
    PDL: tl.constexpr,
    MOST_SEQUENCES: tl.constexpr,
    PIECES: tl.constexpr,
    WHOLE: tl.constexpr,
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

    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        if not SHARED:  # else the kernel before, of prefixes, began when all was there but what it writes
            tl.extra.cuda.gdc_wait()
    # Every program finds its stretch of the line from all lengths. Padding has one tile, an empty one.
    everyone = tl.arange(0, MOST_SEQUENCES)
    there = everyone < sequences
    seen = tl.load(lengths + everyone, mask=there, other=0)
    start = tl.zeros((MOST_SEQUENCES,), tl.int32)
    if SHARED:
        start = tl.load(shared_lengths + everyone, mask=there, other=0)
    if WINDOW > 0:
        start = tl.maximum(start, seen - WINDOW)
    tiles = tl.where(there, tl.maximum(tl.cdiv(seen, TILE) - start // TILE, 1), 0)
    every = tl.sum(tiles, 0) * KV_HEADS
    if ALIGNED:
        # One piece a program, all of one head. Every head's last piece may be short, hence the difference.
        stretch = tl.cdiv(every, tl.num_programs(0) - sequences * KV_HEADS)
        longest = tl.max(tiles, 0)
        least = tl.where(longest <= WHOLE, WHOLE, tl.minimum(tl.cdiv(longest, PIECES), WHOLE))
        stretch = tl.maximum(stretch, least)
        ends = tl.cumsum(tl.cdiv(tiles, stretch), 0) * KV_HEADS
        at = program
        stop = tl.minimum(program + 1, tl.max(ends, 0))
    else:
        stretch = tl.cdiv(every, tl.num_programs(0))
        ends = tl.cumsum(tiles, 0) * KV_HEADS
        at = program * stretch
        stop = tl.minimum(at + stretch, every)
        if SHARED:
            at = _round_up(at, ends, tiles, WHOLE, MOST_SEQUENCES)
            stop = _round_up(stop, ends, tiles, WHOLE, MOST_SEQUENCES)
    before = tl.max(tl.where(ends <= at, ends, 0), 0)  # what there is of earlier sequences
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
        if ALIGNED:
            pieces = tl.cdiv(count, stretch)
            head = (at - before) // pieces
            from_program = before + head * pieces
            begin = (at - from_program) * stretch
            end = tl.minimum(count, begin + stretch)
            following = at + 1
        else:
            head = (at - before) // count
            line = before + head * count  # where this head's tiles begin
            from_program = line // stretch
            pieces = (line + count - 1) // stretch - from_program + 1
            if SHARED and count <= WHOLE:
                pieces = 1
            begin = at - line
            end = tl.minimum(count, stop - line)
            following = line + end

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
            arrived = 0
            if pieces > 1:
                arrival = arrivals + sequence * KV_HEADS + head
                arrived = tl.atomic_add(arrival, 1, sem="acq_rel")
                if arrived == pieces - 1:
                    tl.store(arrival, 0)
            if arrived == pieces - 1:
                merge_pieces(
                    accumulators,
                    bounds,
                    shared_accumulators,
                    shared_bounds,
                    from_program,
                    pieces,
                    sequence * HEADS + head * GROUP,
                    tl.where(shared > 0, shared_splits, 0),
                    shared_splits,
                    out,
                    SHARED,
                    PDL,
                    PIECES,
                    GROUP,
                    WIDE,
                    DIM,
                    PADDED,
                )
        at = following
        if not ALIGNED and at == before + count * KV_HEADS:
            before = at
            sequence += 1
    if PDL and SHARED:
        tl.extra.cuda.gdc_wait()  # who waits for this kernel waits for the one before it too
