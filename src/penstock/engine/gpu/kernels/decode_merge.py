"""Partial results of attention, merged: each is of the query heads that share one KV head."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def keep_group(
    total, best, sums, GROUP: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, PADDED: tl.constexpr
):  # fmt: skip
    """(PADDED, WIDE), (WIDE,), (WIDE,) of (PADDED, ROWS), (ROWS,), (ROWS,): no rows that only pad."""
    if ROWS > WIDE:
        real = tl.arange(0, ROWS) < GROUP
        total = tl.sum(tl.where(real[None, :], total, 0.0).reshape(PADDED, ROWS // WIDE, WIDE), 1)
        best = tl.max(tl.where(real, best, float("-inf")).reshape(ROWS // WIDE, WIDE), 0)
        sums = tl.sum(tl.where(real, sums, 0.0).reshape(ROWS // WIDE, WIDE), 0)
    return total, best, sums


@triton.jit
def merge_pieces(
    accumulators,
    bounds,
    from_program,  # which left the first piece
    pieces,
    PIECES: tl.constexpr,
    GROUP: tl.constexpr,
    WIDE: tl.constexpr,
    PADDED: tl.constexpr,
):
    """What programs left of one sequence and KV head."""
    heads = tl.arange(0, WIDE)[:, None]
    total = tl.zeros((PADDED, WIDE), tl.float32)
    best = tl.full((WIDE,), float("-inf"), tl.float32)
    sums = tl.zeros((WIDE,), tl.float32)
    for origin in range(0, pieces, PIECES):
        number = origin + tl.arange(0, PIECES)[None, :]
        # A program's second piece is of the head that it begins, which is the head's first.
        places = (2 * (from_program + number) + (number == 0)) * GROUP + heads
        mask = (number < pieces) & (heads < GROUP)
        total, best, sums = _add(total, best, sums, accumulators, bounds, places, mask, PADDED)
    return total, best, sums


@triton.jit
def add_prefix(
    total,
    best,
    sums,
    accumulators,
    bounds,
    row,  # of the output: sequence * heads + first head of the group
    pieces,  # 0: the sequence has no shared prefix
    splits,
    PIECES: tl.constexpr,
    MOST_SPLITS: tl.constexpr,
    GROUP: tl.constexpr,
    WIDE: tl.constexpr,
    PADDED: tl.constexpr,
):
    """What a sequence sees alone, and the prefix that it shares. No loop: loads are not made ahead of time in
    one that has another within."""
    heads = tl.arange(0, WIDE)[:, None]
    for origin in tl.static_range(0, MOST_SPLITS, PIECES):
        if origin < pieces:
            number = origin + tl.arange(0, PIECES)[None, :]
            mask = (number < pieces) & (heads < GROUP)
            total, best, sums = _add(
                total, best, sums, accumulators, bounds, (row + heads) * splits + number, mask, PADDED
            )
    return total, best, sums


@triton.jit
def _add(
    total,  # (PADDED, ROWS), in units of 2 ** best
    best,  # (ROWS,)
    sums,
    accumulators,  # (anything, PADDED)
    bounds,  # (anything, 2): maximum, sum
    places,  # (ROWS, PIECES): where the pieces' rows are
    mask,
    PADDED: tl.constexpr,
):
    """Partial results merged into those at hand, all of them loaded at once."""
    dims = tl.arange(0, PADDED)
    # Written by other programs of this launch perhaps: past the first level of cache.
    maxima = tl.load(bounds + places * 2, mask=mask, other=float("-inf"), cache_modifier=".cg")
    pieces = tl.load(bounds + places * 2 + 1, mask=mask, other=0.0, cache_modifier=".cg")
    parts = tl.load(
        accumulators + places[None, :, :] * PADDED + dims[:, None, None],
        mask=mask[None, :, :],
        other=0.0,
        cache_modifier=".cg",
    )
    higher = tl.maximum(best, tl.max(maxima, 1))
    reference = tl.where(higher == float("-inf"), 0.0, higher)
    shares = tl.exp2(maxima - reference[:, None])
    decay = tl.exp2(best - reference)
    total = total * decay[None, :] + tl.sum(parts * shares[None, :, :], 2)
    return total, higher, sums * decay + tl.sum(pieces * shares, 1)
