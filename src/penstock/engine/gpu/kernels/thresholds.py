"""Top-k, top-p and min-p as one threshold on the values of a row, found without sorting it.

Values are scaled: (logit - largest) / temperature, so that the best is 0 and a key, the bits of the
magnitude, is the smaller the better a value is. What a row counts is tokens where it has a top-k, else
probability. First it is counted how much lies above each of a few levels; the values between the two levels
that enclose the threshold are collected (of a top-k, all above the lower one, for a top-p may follow), and
searched by halving their range of keys. Every launch has the same grid whatever the rows ask for, every sum a
fixed order, and a row that asks for nothing leaves at once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.kernels.launch import await_previous, overlapped
from penstock.engine.gpu.kernels.numbers import LOG2E, ceil_div, power_of_two
from penstock.engine.layers.sampler import Parameters

_LEVELS = tl.constexpr(16)
_SEARCH_LANES = 4096  # candidates that are looked at together
_INFINITY_KEY = tl.constexpr(0x7F800000)
_NO_KEY = tl.constexpr(0x7FFFFFFF)  # of what lies beyond the candidates


@triton.jit
def load_logits(row_at, ids, vocab):
    """What is not a number counts as infinite, so that the largest of a row tells whether all are numbers."""
    x = tl.load(row_at + ids, mask=ids < vocab, other=float("-inf")).to(tl.float32)
    return tl.where(x == x, x, float("inf"))


@triton.jit
def load_largest(tops_at, row, chunks, CHUNKS: tl.constexpr):
    chunk = tl.arange(0, CHUNKS)
    return tl.max(tl.load(tops_at + row * chunks + chunk, mask=chunk < chunks, other=float("-inf")))


@triton.jit
def scaled(x, largest, temperature):
    return (x - largest) * tl.div_rn(1.0, temperature)


@triton.jit
def _probability(value):
    """Not yet divided by the sum of all."""
    return tl.exp2(value * LOG2E)


@triton.jit
def _key(value):
    return value.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def _extremes(logits_at, tops_at, bottoms_at, vocab, stride, chunks, BLOCK: tl.constexpr, PDL: tl.constexpr):
    await_previous(PDL)
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x = load_logits(logits_at + row * stride, chunk * BLOCK + tl.arange(0, BLOCK), vocab)
    tl.store(tops_at + row * chunks + chunk, tl.max(x))
    tl.store(bottoms_at + row * chunks + chunk, tl.min(tl.where(x == float("-inf"), float("inf"), x)))


@triton.jit
def _asked(
    tops_at, temperature_at, top_k_at, top_p_at, slots_at, row, vocab, chunks, CHUNKS: tl.constexpr
):  # fmt: skip
    """The row's slot and largest logit, then temperature, k or 0, p or 1; a row that cannot be drawn from, or
    not at random, asks for nothing."""
    largest = load_largest(tops_at, row, chunks, CHUNKS)
    slot = tl.load(slots_at + row)
    temperature = tl.load(temperature_at + slot)
    at_random = (temperature > 0) & (tl.abs(largest) < float("inf"))
    k = tl.load(top_k_at + slot)
    p = tl.load(top_p_at + slot)
    return slot, largest, temperature, tl.where(at_random & (k < vocab), k, 0), tl.where(at_random, p, 1.0)


@triton.jit
def _lowest_level(bottoms_at, row, chunks, largest, temperature, k, p, vocab, CHUNKS: tl.constexpr):
    chunk = tl.arange(0, CHUNKS)
    bottom = tl.min(tl.load(bottoms_at + row * chunks + chunk, mask=chunk < chunks, other=float("inf")))
    lowest = scaled(bottom, largest, temperature)
    # All values below this have less probability together than a top-p leaves out.
    return tl.where(k > 0, lowest, tl.maximum(lowest, tl.log(tl.maximum(1.0 - p, 1e-8) / vocab)))


@triton.jit
def _level(lowest, at):
    """From below everything, then evenly from `lowest` almost up to the best, then beyond it."""
    inside = lowest * (1.0 - at * (1.0 / _LEVELS))
    return tl.where(at == 0, float("-inf"), tl.where(at < _LEVELS, inside, float("inf")))


@triton.jit
def _count_levels(
    logits_at,
    tops_at,
    bottoms_at,
    weights_at,
    temperature_at,
    top_k_at,
    top_p_at,
    slots_at,
    vocab,
    stride,
    chunks,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    await_previous(PDL)
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    _slot, largest, temperature, k, p = _asked(
        tops_at, temperature_at, top_k_at, top_p_at, slots_at, row, vocab, chunks, CHUNKS
    )
    if (k > 0) | (p < 1.0):
        lowest = _lowest_level(bottoms_at, row, chunks, largest, temperature, k, p, vocab, CHUNKS)
        ids = chunk * BLOCK + tl.arange(0, BLOCK)
        value = scaled(load_logits(logits_at + row * stride, ids, vocab), largest, temperature)
        weight = tl.where(k > 0, 1.0, _probability(value))
        # Not above minus infinity either.
        value = tl.where(ids < vocab, value, float("nan"))
        for level in tl.static_range(_LEVELS):
            above = value >= _level(lowest, tl.full((), level, tl.int32))
            total = tl.sum(tl.where(above, weight, 0.0))
            tl.store(weights_at + (row * chunks + chunk) * _LEVELS + level, total)


@triton.jit
def _bracket(weights_at, row, chunks, k, p, CHUNKS: tl.constexpr):
    """The levels that enclose the threshold, of a top-k the lower one and none; the weight of all values, and
    of those above."""
    chunk, level = tl.arange(0, CHUNKS), tl.arange(0, _LEVELS)
    at = (row * chunks + chunk)[:, None] * _LEVELS + level[None, :]
    weights = tl.sum(tl.load(weights_at + at, mask=(chunk < chunks)[:, None], other=0.0), axis=0)
    weight = tl.max(weights)
    target = tl.where(k > 0, k.to(tl.float32), p * weight)
    lower = tl.sum((weights >= target).to(tl.int32)) - 1
    upper = tl.where(k > 0, _LEVELS, lower + 1)
    return lower, upper, weight, tl.sum(tl.where(level == upper, weights, 0.0))


@triton.jit
def _collect(
    logits_at,
    tops_at,
    bottoms_at,
    weights_at,
    candidates_at,
    found_at,
    temperature_at,
    top_k_at,
    top_p_at,
    slots_at,
    vocab,
    stride,
    chunks,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    await_previous(PDL)
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    _slot, largest, temperature, k, p = _asked(
        tops_at, temperature_at, top_k_at, top_p_at, slots_at, row, vocab, chunks, CHUNKS
    )
    if (k > 0) | (p < 1.0):
        lowest = _lowest_level(bottoms_at, row, chunks, largest, temperature, k, p, vocab, CHUNKS)
        lower, upper, _weight, _above = _bracket(weights_at, row, chunks, k, p, CHUNKS)
        ids = chunk * BLOCK + tl.arange(0, BLOCK)
        value = scaled(load_logits(logits_at + row * stride, ids, vocab), largest, temperature)
        kept = (ids < vocab) & (value >= _level(lowest, lower)) & (value < _level(lowest, upper))
        place = tl.cumsum(kept.to(tl.int32), 0)
        at = row * chunks + chunk
        tl.store(candidates_at + at * BLOCK + place - 1, value, mask=kept)
        tl.store(found_at + at, tl.sum(kept.to(tl.int32)))


@triton.jit
def _best_key(
    row_at, found, low, high, target, BY_COUNT: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr
):
    """The smallest key from low to high at which what has such a key or a better one reaches the target; high
    where nothing does. A program's lanes are divided among the chunks, `WIDTH` each."""
    lane = tl.arange(0, found.shape[0])
    most = tl.max(found)
    while low < high:
        # Three places at once: half as many turns, each of which waits for all threads.
        step = (high - low) // 4
        first, second, third = low + step, low + 2 * step, low + 3 * step
        sum_1 = tl.zeros(found.shape, tl.float32)
        sum_2 = tl.zeros(found.shape, tl.float32)
        sum_3 = tl.zeros(found.shape, tl.float32)
        for start in range(0, most, WIDTH):
            place = start + lane % WIDTH
            value = tl.load(row_at + lane // WIDTH * BLOCK + place, mask=place < found, other=0.0)
            key = tl.where(place < found, _key(value), _NO_KEY)
            weight = 1.0 if BY_COUNT else _probability(value)
            sum_1 += tl.where(key <= first, weight, 0.0)
            sum_2 += tl.where(key <= second, weight, 0.0)
            sum_3 += tl.where(key <= third, weight, 0.0)
        if tl.sum(sum_1) >= target:
            high = first
        elif tl.sum(sum_2) >= target:
            low = first + 1
            high = second
        elif tl.sum(sum_3) >= target:
            low = second + 1
            high = third
        else:
            low = third + 1
    return low


@triton.jit
def _mass(row_at, found, worst, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    """The probability of the candidates down to a key."""
    lane = tl.arange(0, found.shape[0])
    total = tl.zeros(found.shape, tl.float32)
    for start in range(0, tl.max(found), WIDTH):
        place = start + lane % WIDTH
        value = tl.load(row_at + lane // WIDTH * BLOCK + place, mask=place < found, other=0.0)
        total += tl.where((place < found) & (_key(value) <= worst), _probability(value), 0.0)
    return tl.sum(total)


@triton.jit
def _find_threshold(
    tops_at,
    bottoms_at,
    weights_at,
    candidates_at,
    found_at,
    thresholds_at,
    temperature_at,
    top_k_at,
    top_p_at,
    min_p_at,
    slots_at,
    vocab,
    chunks,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
    PDL: tl.constexpr,
):
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    slot, largest, temperature, k, p = _asked(
        tops_at, temperature_at, top_k_at, top_p_at, slots_at, row, vocab, chunks, CHUNKS
    )
    worst = tl.full((), _INFINITY_KEY, tl.int32)
    if (k > 0) | (p < 1.0):
        lowest = _lowest_level(bottoms_at, row, chunks, largest, temperature, k, p, vocab, CHUNKS)
        lower, upper, mass, above = _bracket(weights_at, row, chunks, k, p, CHUNKS)
        chunk = tl.arange(0, CHUNKS * WIDTH) // WIDTH
        found = tl.load(found_at + row * chunks + chunk, mask=chunk < chunks, other=0)
        row_at = candidates_at + row * chunks * BLOCK
        worst = _key(_level(lowest, lower))
        best = tl.where(upper < _LEVELS, _key(_level(lowest, upper)), 0)
        if k > 0:
            worst = _best_key(row_at, found, best, worst, k.to(tl.float32), True, BLOCK, WIDTH)
            mass = _mass(row_at, found, worst, BLOCK, WIDTH)
        if p < 1.0:
            worst = _best_key(row_at, found, best, worst, p * mass - above, False, BLOCK, WIDTH)
    threshold = -worst.to(tl.float32, bitcast=True)
    min_p = tl.load(min_p_at + slot)
    # In logarithms, where the best is 0.
    threshold = tl.where(min_p > 0, tl.maximum(threshold, tl.log(min_p)), threshold)
    tl.store(thresholds_at + row, threshold)


def find_thresholds(
    logits: Tensor, parameters: Parameters, slots: Tensor, block: int, warps: int
) -> tuple[Tensor, Tensor]:
    """[rows, chunks] the largest logit of each `block` tokens, and [rows] the least scaled value that may be
    drawn; minus infinity where a row filters nothing."""
    rows, vocab = logits.shape
    chunks = ceil_div(vocab, block)
    padded = power_of_two(chunks)
    tops, bottoms = logits.new_empty((2, rows, chunks), dtype=torch.float32)
    weights = logits.new_empty((rows, chunks, _LEVELS.value), dtype=torch.float32)
    candidates = logits.new_empty((rows, chunks, block), dtype=torch.float32)
    found = logits.new_empty((rows, chunks), dtype=torch.int32)
    thresholds = logits.new_empty(rows, dtype=torch.float32)
    asked = parameters.temperature, parameters.top_k, parameters.top_p
    shape = {"CHUNKS": padded, "BLOCK": block, **overlapped()}
    size = vocab, logits.stride(0), chunks
    grid = rows, chunks
    _extremes[grid](logits, tops, bottoms, *size, BLOCK=block, num_warps=warps, **overlapped())
    _count_levels[grid](logits, tops, bottoms, weights, *asked, slots, *size, **shape, num_warps=warps)
    _collect[grid](
        logits, tops, bottoms, weights, candidates, found, *asked, slots, *size, **shape, num_warps=warps
    )
    _find_threshold[(rows,)](
        tops,
        bottoms,
        weights,
        candidates,
        found,
        thresholds,
        *asked,
        parameters.min_p,
        slots,
        vocab,
        chunks,
        **shape,
        WIDTH=max(_SEARCH_LANES // padded, 1),
        num_warps=16,
    )
    return tops, thresholds
