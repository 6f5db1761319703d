"""What sequences with one query each see alone.

It is one line of tiles (sequence by sequence, head by head), cut into equal stretches: every program reads as
many bytes as every other, whatever the lengths, so one captured launch serves all. Where a stretch ends
within a head, its partial result is left in the workspace, and the last program to arrive merges. That costs
more than reading a tile, so in a small batch stretches end with heads, and so they do behind shared prefixes
where every head can have a program and none would read much longer than in a fair share.
"""

from __future__ import annotations

import triton
import triton.language as tl

from penstock.engine.gpu.kernels.decode_merge import add_prefix, keep_group, merge_pieces
from penstock.engine.gpu.kernels.decode_tiles import load_queries, read_tiles


@triton.jit
def _find(at, ends):
    """(what there is of earlier sequences, the sequence) at a place of the line."""
    return tl.max(tl.where(ends <= at, ends, 0), 0), tl.sum((ends <= at).to(tl.int32), 0)


@triton.jit
def _round_up(at, ends, tiles, WHOLE: tl.constexpr, MOST_SEQUENCES: tl.constexpr):
    """The place of the line at which a stretch may end: not within a short head, since behind a shared prefix
    most heads are."""
    before, sequence = _find(at, ends)
    count = tl.maximum(tl.sum(tl.where(tl.arange(0, MOST_SEQUENCES) == sequence, tiles, 0), 0), 1)
    beyond = (at - before) % count
    return tl.where((beyond > 0) & (count <= WHOLE), at - beyond + count, at)


@triton.jit(do_not_specialize=["sequences", "shared_splits"])
def attend_own(
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
    BY_HEAD: tl.constexpr,  # there are no more heads than programs
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
    heads = tl.arange(0, WIDE)  # of a group

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
        before, sequence = _find(at, ends)
    else:
        stretch = tl.cdiv(every, tl.num_programs(0))
        by_head = (tl.max(tiles, 0) <= stretch + WHOLE) & BY_HEAD
        if by_head:
            at = program
            stop = tl.minimum(program + 1, sequences * KV_HEADS)
            sequence = program // KV_HEADS
            before = sequence * KV_HEADS
        else:
            ends = tl.cumsum(tiles, 0) * KV_HEADS
            at = program * stretch
            stop = tl.minimum(at + stretch, every)
            if SHARED:
                at = _round_up(at, ends, tiles, WHOLE, MOST_SEQUENCES)
                stop = _round_up(stop, ends, tiles, WHOLE, MOST_SEQUENCES)
            before, sequence = _find(at, ends)
    if MOST_SEQUENCES == 1:
        sequence = program * 0

    while at < stop:
        length = tl.load(lengths + sequence)
        slot = tl.load(slots + sequence).to(tl.int64)
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
            if by_head:
                head = at - before
                pieces = 1
                begin = 0
                end = count
                following = stop

        table = tables + slot * table_row
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

        row = sequence * HEADS + head * GROUP
        if (pieces == 1) & (shared == 0):
            tl.store(
                out + row.to(tl.int64) * DIM + rows[None, :] * DIM + dims[:, None],
                total / tl.where(sums == 0.0, 1.0, sums)[None, :],
                mask=(rows < GROUP)[None, :] & (dims < DIM)[:, None],
            )
        else:
            part, highest, weight = keep_group(total, best, sums, GROUP, WIDE, ROWS, PADDED)
            arrived = 0
            if pieces > 1:
                # A program leaves at most two pieces: of a head that it begins, and of one begun before it.
                piece = (2 * program + (begin == 0)) * GROUP + heads
                tl.store(
                    accumulators + piece[:, None] * PADDED + dims[None, :],
                    part,
                    mask=(heads < GROUP)[:, None],
                )
                tl.store(bounds + piece * 2, highest, mask=heads < GROUP)
                tl.store(bounds + piece * 2 + 1, weight, mask=heads < GROUP)
                tl.debug_barrier()  # all threads have written before one of them says so
                arrival = arrivals + sequence * KV_HEADS + head
                arrived = tl.atomic_add(arrival, 1, sem="acq_rel")
                if arrived == pieces - 1:
                    tl.store(arrival, 0)
                    part, highest, weight = merge_pieces(
                        accumulators, bounds, from_program, pieces, PIECES, GROUP, WIDE, PADDED
                    )
            if arrived == pieces - 1:
                if SHARED:
                    if PDL:
                        tl.extra.cuda.gdc_wait()  # for the partial results of prefixes
                    part, highest, weight = add_prefix(
                        part,
                        highest,
                        weight,
                        shared_accumulators,
                        shared_bounds,
                        row,
                        tl.where(shared > 0, shared_splits, 0),
                        shared_splits,
                        PIECES,
                        GROUP,
                        WIDE,
                        PADDED,
                    )
                tl.store(
                    out + (row.to(tl.int64) + heads)[:, None] * DIM + dims[None, :],
                    part / tl.where(weight == 0.0, 1.0, weight)[:, None],
                    mask=(heads < GROUP)[:, None] & (dims < DIM)[None, :],
                )
        at = following
        if not ALIGNED and at == before + count * KV_HEADS:
            before = at
            sequence += 1
    if PDL and SHARED:
        tl.extra.cuda.gdc_wait()  # who waits for this kernel waits for the one before it too
