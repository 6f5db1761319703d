"""What sequences with one query each see alone.

It is one line of tiles (head by head, sequence by sequence), cut into equal stretches: every program reads as
many bytes as every other, whatever the lengths, so one captured launch serves all. A program goes through its
stretch in one loop, so that the next sequence's tiles are on their way while one ends. Where a stretch ends
within a sequence, a partial result is left in the workspace, and the last program to arrive merges. That
costs more than reading a few tiles, so stretches end with sequences where every one can have a program and
none would read much longer than in a fair share, and behind shared prefixes, where sequences are short.
"""

from __future__ import annotations

import triton
import triton.language as tl

from penstock.engine.gpu.kernels.decode_list import ENTRY, SPAN_BITS, SPAN_MASK
from penstock.engine.gpu.kernels.decode_merge import add_prefix, keep_group, merge_pieces
from penstock.engine.gpu.kernels.decode_tiles import add_tile, load_queries, whole_vectors


@triton.jit
def _round_up(at, entries, runs, tiles, every, WHOLE: tl.constexpr):
    """The place of the line at which a stretch may end: not within a short run of tiles."""
    tile = at % tiles
    sequence = tl.load(entries + tile * ENTRY + 1)
    beyond = tile - tl.load(runs + 2 + sequence * 2)
    count = tl.load(runs + 3 + sequence * 2)
    return tl.where((at < every) & (beyond > 0) & (count <= WHOLE), at - beyond + count, at)


@triton.jit
def _load_entry(entries, tables, tile, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """A tile's entry of the list, and which block each of its tokens is in."""
    entry = entries + tile * ENTRY
    place = tl.load(entry)
    sequence = tl.load(entry + 1)
    span = tl.load(entry + 2)
    last = tl.load(entry + 3)
    if TILE <= BLOCK:
        blocks = place
    else:
        offsets = tl.arange(0, TILE)
        blocks = tl.load(tables + place + offsets // BLOCK, mask=offsets < (span & SPAN_MASK), other=0)
    return place, sequence, span, last, blocks


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
    entries,
    runs,
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
    FEW: tl.constexpr,  # sequences
    PDL: tl.constexpr,
    PIECES: tl.constexpr,
    MOST_SPLITS: tl.constexpr,
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
    QUERY: tl.constexpr,
    CAPPED: tl.constexpr,
    WINDOW: tl.constexpr,
):
    HEADS: tl.constexpr = KV_HEADS * GROUP
    WIDTH: tl.constexpr = DIM // 2 if SCALED else DIM
    PADDED_WIDTH: tl.constexpr = PADDED // 2 if SCALED else PADDED
    program = tl.program_id(0)
    rows = tl.arange(0, ROWS)
    offsets = tl.arange(0, TILE)

    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    # The list is there before any layer begins: a kernel of the library, which waits for all before it, looks
    # up the embeddings in between.
    tiles = tl.load(runs)
    longest = tl.load(runs + 1)
    every = tiles * KV_HEADS
    stretch = tl.cdiv(every, tl.num_programs(0))
    by_head = (longest <= stretch + WHOLE) & (sequences * KV_HEADS <= tl.num_programs(0))
    if sequences <= FEW:
        stretch = tl.maximum(stretch, tl.minimum(tl.cdiv(longest, PIECES), WHOLE))
    at = program * stretch
    stop = tl.minimum(at + stretch, every)
    if by_head:
        sequence = tl.minimum(program // KV_HEADS, sequences - 1)
        at = program % KV_HEADS * tiles + tl.load(runs + 2 + sequence * 2)
        stop = at + tl.where(program < sequences * KV_HEADS, tl.load(runs + 3 + sequence * 2), 0)
    elif SHARED:
        at = _round_up(at, entries, runs, tiles, every, WHOLE)
        stop = _round_up(stop, entries, runs, tiles, every, WHOLE)
    head = at // tiles
    tile = at - head * tiles
    place, sequence, span, last, blocks = _load_entry(entries, tables, tile, BLOCK, TILE)
    if PDL and not SHARED:  # else the kernel before, of prefixes, began when all was there but what it writes
        tl.extra.cuda.gdc_wait()

    best = tl.full((ROWS,), float("-inf"), tl.float32)
    sums = tl.zeros((TILE, ROWS), tl.float32)
    total = tl.zeros((PADDED_WIDTH, ROWS), tl.float32)
    odd_total = tl.zeros((PADDED_WIDTH, ROWS), tl.float32)
    for spot in range(at, stop):
        if TILE <= BLOCK:
            vectors = place.to(tl.int64) + head * BLOCK + offsets
        else:
            vectors = (blocks.to(tl.int64) * KV_HEADS + head) * BLOCK + offsets % BLOCK
        query_places = sequence.to(tl.int64) * query_row + (head * GROUP + rows) * query_head
        queries = load_queries(query, query_places, rows < GROUP, WIDTH, PADDED_WIDTH)
        total, odd_total, best, sums = add_tile(
            total,
            odd_total,
            best,
            sums,
            queries,
            keys,
            values,
            key_scales,
            value_scales,
            vectors,
            span >> SPAN_BITS,
            span & SPAN_MASK,
            scale,
            softcap,
            DIM,
            PADDED,
            TILE,
            SCALED,
            CAPPED,
            SHARED or WINDOW > 0,
            QUERY,
        )
        ended = (last == 1) | (spot + 1 == stop)
        if ended:
            here = head * tiles + tl.load(runs + 2 + sequence * 2) >= at
            group_total = whole_vectors(total, odd_total, PADDED, ROWS, SCALED)
            part, highest, weight = keep_group(group_total, best, tl.sum(sums, 0), GROUP, WIDE, ROWS, PADDED)
            if here & (last == 1):
                _finish(
                    part, highest, weight, sequence, head, out, shared_lengths, shared_accumulators,
                    shared_bounds, shared_splits, SHARED, PDL, PIECES, MOST_SPLITS, HEADS, GROUP, WIDE,
                    DIM, PADDED,
                )  # fmt: skip
            else:
                # A program leaves at most two pieces: of a sequence that it begins, and of one begun before.
                _leave(part, highest, weight, 2 * program + here, accumulators, bounds, GROUP, WIDE, PADDED)
        # The next one begins anew, whatever this one was.
        best = tl.where(ended, float("-inf"), best)
        sums = tl.where(ended, 0.0, sums)
        total = tl.where(ended, 0.0, total)
        if SCALED:
            odd_total = tl.where(ended, 0.0, odd_total)
        # The next entry is loaded a tile ahead, so that a tile's address never waits for memory.
        tile += 1
        head = tl.where(tile == tiles, head + 1, head)
        tile = tl.where(tile == tiles, 0, tile)
        place, sequence, span, last, blocks = _load_entry(entries, tables, tile, BLOCK, TILE)

    if (at < stop) & (not by_head):
        tl.debug_barrier()  # all threads have written before one of them says so
        known = -1
        for side in tl.static_range(2):
            spot = at if side == 0 else stop - 1
            head = spot // tiles
            sequence = tl.load(entries + (spot - head * tiles) * ENTRY + 1)
            line = head * tiles + tl.load(runs + 2 + sequence * 2)
            count = tl.load(runs + 3 + sequence * 2)
            from_program = line // stretch
            pieces = (line + count - 1) // stretch - from_program + 1
            if SHARED:
                pieces = tl.where(count <= WHOLE, 1, pieces)
            if (pieces > 1) & (line != known):
                arrival = arrivals + sequence * KV_HEADS + head
                if tl.atomic_add(arrival, 1, sem="acq_rel") == pieces - 1:
                    tl.store(arrival, 0)
                    part, highest, weight = merge_pieces(
                        accumulators, bounds, from_program, pieces, PIECES, GROUP, WIDE, PADDED
                    )
                    _finish(
                        part, highest, weight, sequence, head, out, shared_lengths, shared_accumulators,
                        shared_bounds, shared_splits, SHARED, PDL, PIECES, MOST_SPLITS, HEADS, GROUP, WIDE,
                        DIM, PADDED,
                    )  # fmt: skip
            known = line
    if PDL and SHARED:
        tl.extra.cuda.gdc_wait()  # who waits for this kernel waits for the one before it too


@triton.jit
def _leave(
    part,
    highest,
    weight,
    piece,
    accumulators,
    bounds,
    GROUP: tl.constexpr,
    WIDE: tl.constexpr,
    PADDED: tl.constexpr,
):
    """A partial result, for whoever merges."""
    heads = tl.arange(0, WIDE)
    dims = tl.arange(0, PADDED)
    rows = piece * GROUP + heads
    tl.store(accumulators + rows[None, :] * PADDED + dims[:, None], part, mask=(heads < GROUP)[None, :])
    tl.store(bounds + rows * 2, highest, mask=heads < GROUP)
    tl.store(bounds + rows * 2 + 1, weight, mask=heads < GROUP)


@triton.jit
def _finish(
    part,  # (PADDED, WIDE)
    highest,
    weight,
    sequence,
    head,
    out,
    shared_lengths,
    shared_accumulators,
    shared_bounds,
    shared_splits,
    SHARED: tl.constexpr,
    PDL: tl.constexpr,
    PIECES: tl.constexpr,
    MOST_SPLITS: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    WIDE: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
):
    """The result of one sequence and KV head, with the prefix that it shares."""
    heads = tl.arange(0, WIDE)
    dims = tl.arange(0, PADDED)
    row = sequence * HEADS + head * GROUP
    if SHARED:
        if PDL:
            tl.extra.cuda.gdc_wait()  # for the partial results of prefixes
        shared = tl.load(shared_lengths + sequence)
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
            MOST_SPLITS,
            GROUP,
            WIDE,
            PADDED,
        )
    tl.store(
        out + (row.to(tl.int64) + heads)[None, :] * DIM + dims[:, None],
        part / tl.where(weight == 0.0, 1.0, weight)[None, :],
        mask=(heads < GROUP)[None, :] & (dims < DIM)[:, None],
    )
