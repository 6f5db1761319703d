"""Reading a stretch of one KV head's cache for a few queries.

Scores have tokens along the first axis, rows (queries) along the second: keys and values then are the left
side of both products, which the matrix unit reads from shared memory as they arrived, and the few queries are
the right side, padded only to `LEAST_ROWS`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from penstock.engine.gpu.kernels.numbers import LOG2E

TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
LEAST_ROWS = 16  # the fewest columns that the matrix unit of a Hopper takes through Triton
# Weights are multiplied by the scales of values before they are rounded to sixteen bits: without this factor
# those of small values would lose bits. Values up to 28,000 fit.
VALUE_FACTOR = tl.constexpr(1024.0)
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)  # on the CPU, where there is no assembly


@triton.jit
def read_tiles(
    query,  # (PADDED, ROWS) in the type of the products; eight bits: two of half that, even and odd dims
    keys,  # eight bits: as words of two
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
    WIDTH: tl.constexpr = DIM // 2 if SCALED else DIM  # elements of a vector
    PADDED_WIDTH: tl.constexpr = PADDED // 2 if SCALED else PADDED
    offsets = tl.arange(0, TILE)
    dims = tl.arange(0, PADDED_WIDTH)
    best = tl.full((ROWS,), float("-inf"), tl.float32)
    sums = tl.zeros((TILE, ROWS), tl.float32)  # added up over tokens only at the end
    total = tl.zeros((PADDED_WIDTH, ROWS), tl.float32)
    odd_total = tl.zeros((PADDED_WIDTH, ROWS), tl.float32)

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
            places = row * WIDTH + offsets * WIDTH
            scale_places = row + offsets
            block = tl.load(table + (tile + 1) * TILE // BLOCK, mask=tile + 1 < end, other=0)
        else:
            scale_places = (block.to(tl.int64) * KV_HEADS + head) * BLOCK + offsets % BLOCK
            places = scale_places * WIDTH
            following = positions + TILE
            block = tl.load(table + following // BLOCK, mask=(following < length) & (tile + 1 < end), other=0)
        seen = positions < length

        mask = seen[:, None]
        if PADDED_WIDTH != WIDTH:
            mask = mask & (dims < WIDTH)[None, :]
        key = tl.load(keys + (places[:, None] + dims[None, :]), mask=mask, other=0)
        if SCALED:
            even, odd = split_words(key)
            scores = tl.dot(even, query[0])
            scores = tl.dot(odd, query[1], scores)
            scores *= tl.load(key_scales + scale_places, mask=seen, other=0.0)[:, None]
        else:
            scores = tl.dot(key, query, input_precision="ieee")
        # Scores times `unit` are powers of two.
        unit = scale
        if CAPPED:
            # tanh(x) = 1 - 2 / (exp(2 x) + 1)
            scores = 1.0 - 2.0 / (tl.exp2(scores * (scale * 2.0 * LOG2E / softcap)) + 1.0)
            unit = softcap * LOG2E
        visible = seen[:, None]
        if LOWER:
            visible = visible & (positions[:, None] >= first)
        scores = tl.where(visible, scores, float("-inf"))

        higher = tl.maximum(best, tl.max(scores, 0) * unit)
        # A row that has seen nothing yet has no maximum to subtract.
        reference = tl.where(higher == float("-inf"), 0.0, higher) if LOWER else higher
        decay = tl.exp2(best - reference)
        weights = tl.exp2(scores * unit - reference[None, :])
        best = higher
        sums = sums * decay[None, :] + weights
        if SCALED:
            weights *= (tl.load(value_scales + scale_places, mask=seen, other=0.0) * VALUE_FACTOR)[:, None]
            # Loaded as columns: the matrix unit's registers take words turned over, but not bytes.
            mask = seen[None, :]
            if PADDED_WIDTH != WIDTH:
                mask = mask & (dims < WIDTH)[:, None]
            value = tl.load(values + (places[None, :] + dims[:, None]), mask=mask, other=0)
            even, odd = split_words(value)
            weights = weights.to(tl.float16)
            total = tl.dot(even, weights, total * decay[None, :])
            odd_total = tl.dot(odd, weights, odd_total * decay[None, :])
        else:
            value = tl.load(values + (places[:, None] + dims[None, :]), mask=mask, other=0)
            total = tl.dot(
                tl.trans(value), weights.to(value.dtype), total * decay[None, :], input_precision="ieee"
            )
    if SCALED:
        total = tl.join(total, odd_total).permute(0, 2, 1).reshape(PADDED, ROWS) * (1.0 / VALUE_FACTOR)
    return total, best, tl.sum(sums, 0)


@triton.jit
def split_words(words):
    """The two eight-bit numbers of each word, in sixteen bits: exact."""
    if INTERPRETED:
        low = (words & 0xFF).to(tl.uint8).to(tl.float8e4nv, bitcast=True).to(tl.float16)
        high = ((words >> 8) & 0xFF).to(tl.uint8).to(tl.float8e4nv, bitcast=True).to(tl.float16)
        return low, high
    else:
        # Two words at a time, their low bytes and then their high ones brought together: a third of the
        # instructions that the compiler makes of the above, which would hold up the memory.
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 bytes;
            .reg .b16 low, high;
            prmt.b32 bytes, $2, 0, 0x3120;
            mov.b32 {low, high}, bytes;
            cvt.rn.f16x2.e4m3x2 $0, low;
            cvt.rn.f16x2.e4m3x2 $1, high;
            }""",
            "=r,=r,r",
            [words],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )


@triton.jit
def load_queries(
    query, places, inside, DIM: tl.constexpr, PADDED: tl.constexpr, SCALED: tl.constexpr, TYPE: tl.constexpr
):
    """The queries at `places` (ROWS,) as `read_tiles` takes them."""
    if SCALED:
        dims = tl.arange(0, PADDED // 2) * 2
        mask = inside[None, :] & (dims < DIM)[:, None]
        even = tl.load(query + places[None, :] + dims[:, None], mask=mask, other=0.0).to(TYPE)
        odd = tl.load(query + places[None, :] + dims[:, None] + 1, mask=mask, other=0.0).to(TYPE)
        return even, odd
    else:
        dims = tl.arange(0, PADDED)
        mask = inside[None, :] & (dims < DIM)[:, None]
        return tl.load(query + places[None, :] + dims[:, None], mask=mask, other=0.0).to(TYPE)
