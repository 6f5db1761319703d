"""One tile of one KV head's cache, for a few queries.

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
def add_tile(
    total,  # (PADDED, ROWS); eight bits: (PADDED // 2, ROWS), of even dims
    odd_total,  # eight bits: of odd dims
    best,  # (ROWS,) maxima in powers of two
    sums,  # (TILE, ROWS) of the weights; added up over tokens only at the end
    query,  # (PADDED, ROWS); eight bits: (PADDED // 2, ROWS) pairs of dims
    keys,  # eight bits: as words of two
    values,
    key_scales,
    value_scales,
    vectors,  # (TILE,) int64: which of the cache's
    first,  # the tile's first position that is seen, where LOWER
    end,  # positions of the tile below it are seen
    scale,  # times log2(e) where there is no cap
    softcap,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
    TILE: tl.constexpr,
    SCALED: tl.constexpr,
    CAPPED: tl.constexpr,
    LOWER: tl.constexpr,
    QUERY: tl.constexpr,  # the type of a query's numbers
):
    """The first four of its arguments, with the tile."""
    WIDTH: tl.constexpr = DIM // 2 if SCALED else DIM  # elements of a vector
    PADDED_WIDTH: tl.constexpr = PADDED // 2 if SCALED else PADDED
    offsets = tl.arange(0, TILE)
    dims = tl.arange(0, PADDED_WIDTH)
    seen = offsets < end
    places = vectors * WIDTH
    mask = seen[:, None]
    if PADDED_WIDTH != WIDTH:
        mask = mask & (dims < WIDTH)[None, :]
    key = tl.load(keys + (places[:, None] + dims[None, :]), mask=mask, other=0)
    if SCALED:
        even, odd = split_words(key)
        even_query, odd_query = split_pairs(query, QUERY)
        scores = tl.dot(even, even_query)
        scores = tl.dot(odd, odd_query, scores)
        scores *= tl.load(key_scales + vectors, mask=seen, other=0.0)[:, None]
    else:
        scores = tl.dot(key, query.to(key.dtype), input_precision="ieee")
    # Scores times `unit` are powers of two.
    unit = scale
    if CAPPED:
        # tanh(x) = 1 - 2 / (exp(2 x) + 1)
        scores = 1.0 - 2.0 / (tl.exp2(scores * (scale * 2.0 * LOG2E / softcap)) + 1.0)
        unit = softcap * LOG2E
    visible = seen
    if LOWER:
        visible = visible & (offsets >= first)
    scores = tl.where(visible[:, None], scores, float("-inf"))

    higher = tl.maximum(best, tl.max(scores, 0) * unit)
    # A row that has seen nothing yet has no maximum to subtract.
    reference = tl.where(higher == float("-inf"), 0.0, higher)
    decay = tl.exp2(best - reference)
    weights = tl.exp2(scores * unit - reference[None, :])
    sums = sums * decay[None, :] + weights
    if SCALED:
        weights *= (tl.load(value_scales + vectors, mask=seen, other=0.0) * VALUE_FACTOR)[:, None]
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
    return total, odd_total, higher, sums


@triton.jit
def whole_vectors(total, odd_total, PADDED: tl.constexpr, ROWS: tl.constexpr, SCALED: tl.constexpr):
    """(PADDED, ROWS) of what `add_tile` gave."""
    if SCALED:
        total = tl.join(total, odd_total).permute(0, 2, 1).reshape(PADDED, ROWS) * (1.0 / VALUE_FACTOR)
    return total


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
def split_pairs(pairs, TYPE: tl.constexpr):
    """The two numbers of each pair, in sixteen bits."""
    HALF: tl.constexpr = tl.int16 if TYPE.primitive_bitwidth == 16 else tl.int32
    low = pairs.to(HALF).to(TYPE, bitcast=True).to(tl.float16)
    high = (pairs >> TYPE.primitive_bitwidth).to(HALF).to(TYPE, bitcast=True).to(tl.float16)
    return low, high


@triton.jit
def load_queries(query, places, inside, WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr):
    """The queries at `places` (ROWS,) as `add_tile` takes them."""
    dims = tl.arange(0, PADDED_WIDTH)
    mask = inside[None, :] & (dims < WIDTH)[:, None]
    return tl.load(query + places[None, :] + dims[:, None], mask=mask, other=0)
