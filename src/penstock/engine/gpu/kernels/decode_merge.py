"""Partial results of attention, merged into what comes out."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def merge_pieces(
    accumulators,
    bounds,
    shared_accumulators,
    shared_bounds,
    from_program,  # which left the first piece
    pieces,
    row,  # of the output: sequence * heads + first head of the group
    shared_pieces,  # 0: the sequence has no shared prefix
    shared_splits,
    out,
    SHARED: tl.constexpr,
    PDL: tl.constexpr,
    PIECES: tl.constexpr,
    GROUP: tl.constexpr,
    WIDE: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Write the rows of one KV head: of what programs left of it, and of the prefix that it shares."""
    dims = tl.arange(0, PADDED)
    heads = tl.arange(0, WIDE)
    batch = tl.arange(0, PIECES)[:, None]
    total = tl.zeros((WIDE, PADDED), tl.float32)
    best = tl.full((WIDE,), float("-inf"), tl.float32)
    sums = tl.zeros((WIDE,), tl.float32)
    for origin in range(0, pieces, PIECES):
        number = origin + batch
        # A program's second piece is of the head that it begins, which is the head's first.
        places = (2 * (from_program + number) + (number == 0)) * GROUP + heads[None, :]
        mask = (number < pieces) & (heads < GROUP)[None, :]
        total, best, sums = _add(total, best, sums, accumulators, bounds, places, mask, PADDED)
    if SHARED:
        if PDL:
            tl.extra.cuda.gdc_wait()  # for the partial results of prefixes
        for origin in range(0, shared_pieces, PIECES):
            number = origin + batch
            places = (row + heads[None, :]) * shared_splits + number
            mask = (number < shared_pieces) & (heads < GROUP)[None, :]
            total, best, sums = _add(
                total, best, sums, shared_accumulators, shared_bounds, places, mask, PADDED
            )
    tl.store(
        out + (row.to(tl.int64) + heads)[:, None] * DIM + dims[None, :],
        total / tl.where(sums == 0.0, 1.0, sums)[:, None],
        mask=(heads < GROUP)[:, None] & (dims < DIM)[None, :],
    )


@triton.jit
def _add(
    total,  # (ROWS, PADDED), in units of 2 ** best
    best,  # (ROWS,)
    sums,
    accumulators,  # (anything, PADDED)
    bounds,  # (anything, 2): maximum, sum
    places,  # (PIECES, ROWS): where the pieces' rows are
    mask,
    PADDED: tl.constexpr,
):
    """Partial results merged into those at hand, all of them loaded at once."""
    dims = tl.arange(0, PADDED)
    # Written by other programs of this launch perhaps: past the first level of cache.
    maxima = tl.load(bounds + places * 2, mask=mask, other=float("-inf"), cache_modifier=".cg")
    pieces = tl.load(bounds + places * 2 + 1, mask=mask, other=0.0, cache_modifier=".cg")
    parts = tl.load(
        accumulators + places[:, :, None] * PADDED + dims[None, None, :],
        mask=mask[:, :, None],
        other=0.0,
        cache_modifier=".cg",
    )
    higher = tl.maximum(best, tl.max(maxima, 0))
    reference = tl.where(higher == float("-inf"), 0.0, higher)
    shares = tl.exp2(maxima - reference[None, :])
    decay = tl.exp2(best - reference)
    total = total * decay[:, None] + tl.sum(parts * shares[:, :, None], 0)
    return total, higher, sums * decay + tl.sum(pieces * shares, 0)
