"""What kernels of decoding share: reading a stretch of one KV head's cache for a few queries, and merging.

Scores have tokens along the first axis, rows (queries) along the second: keys and values then are the left
side of both products, which the matrix unit reads from shared memory as they arrived, and the few queries are
the right side, padded only to `LEAST_ROWS`.
"""

from __future__ import annotations

import triton
import triton.language as tl

LEAST_ROWS = 16  # the fewest columns that the matrix unit of a Hopper takes through Triton
# Weights are multiplied by the scales of values before they are rounded to sixteen bits: without this factor
# those of small values would lose bits. Values up to 28,000 fit.
VALUE_FACTOR = tl.constexpr(1024.0)


@triton.jit
def read_tiles(
    query,  # (PADDED, ROWS), in the type of the products
    keys,
    values,
    key_scales,
    value_scales,
    table,  # of the sequence: its first entry
    head,
    begin,  # tiles
    end,
    first,  # lowest position seen: a number, or one a row; where LOWER
    length,  # positions below it are seen
    scale,  # times log2(e) where there is no cap
    softcap,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
    SCALED: tl.constexpr,
    CAPPED: tl.constexpr,
    LOWER: tl.constexpr,
):
    """(accumulator (PADDED, ROWS), maxima (ROWS,) in powers of two, sums (ROWS,)) of tiles [begin, end)."""
    offsets = tl.arange(0, TILE)
    dims = tl.arange(0, PADDED)
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    sums = tl.zeros((TILE, ROWS), tl.float32)  # added up over tokens only at the end
    total = tl.zeros((PADDED, ROWS), tl.float32)

    # The table's entry is loaded one tile ahead, so that a tile's address never waits for memory.
    if TILE <= BLOCK:
        block = tl.load(table + begin * TILE // BLOCK, mask=begin < end, other=0)
    else:
        there = begin * TILE + offsets
        block = tl.load(table + there // BLOCK, mask=there < length, other=0)
    for tile in range(begin, end):
        positions = tile * TILE + offsets
        if TILE <= BLOCK:
            row = (block.to(tl.int64) * KV_HEADS + head) * BLOCK + tile * TILE % BLOCK
            places = row * DIM + (offsets[:, None] * DIM + dims[None, :])
            scale_places = row + offsets
            block = tl.load(table + (tile + 1) * TILE // BLOCK, mask=tile + 1 < end, other=0)
        else:
            scale_places = (block.to(tl.int64) * KV_HEADS + head) * BLOCK + offsets % BLOCK
            places = scale_places[:, None] * DIM + dims[None, :]
            following = positions + TILE
            block = tl.load(table + following // BLOCK, mask=(following < length) & (tile + 1 < end), other=0)
        seen = positions < length
        mask = seen[:, None]
        if PADDED != DIM:
            mask = mask & (dims < DIM)[None, :]

        key = tl.load(keys + places, mask=mask, other=0.0)
        scores = tl.dot(key.to(query.dtype), query, input_precision="ieee")
        if SCALED:
            scores *= tl.load(key_scales + scale_places, mask=seen, other=0.0)[:, None]
        scores *= scale
        if CAPPED:
            # tanh(x) = 1 - 2 / (exp(2 x) + 1); then to powers of two.
            capped = 1.0 - 2.0 / (tl.exp2(scores * (2.0 * 1.4426950408889634 / softcap)) + 1.0)
            scores = capped * (softcap * 1.4426950408889634)
        visible = seen[:, None]
        if LOWER:
            visible = visible & (positions[:, None] >= first)
        scores = tl.where(visible, scores, float("-inf"))

        higher = tl.maximum(best, tl.max(scores, 0))
        # A row that has seen nothing yet has no maximum to subtract.
        reference = tl.where(higher == float("-inf"), 0.0, higher) if LOWER else higher
        decay = tl.exp2(best - reference)
        weights = tl.exp2(scores - reference[None, :])
        best = higher
        sums = sums * decay[None, :] + weights
        value = tl.load(values + places, mask=mask, other=0.0)
        if SCALED:
            weights *= tl.load(value_scales + scale_places, mask=seen, other=0.0)[:, None] * VALUE_FACTOR
        total = tl.dot(
            tl.trans(value.to(query.dtype)),
            weights.to(query.dtype),
            total * decay[None, :],
            input_precision="ieee",
        )
    if SCALED:
        total *= 1.0 / VALUE_FACTOR
    return total, best, tl.sum(sums, 0)


@triton.jit
def add_partials(
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
