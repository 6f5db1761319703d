"""Tokens from logits: what a draw means is said in `penstock.engine.layers.sampler`.

A row is cut into chunks of the vocabulary. Each chunk's winner is found in one pass: the race does not mind
what is taken off all logits, so a chunk takes off its own largest, and the last kernel, which compares the
winners, makes up for the difference.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.kernels.launch import await_previous, overlapped
from penstock.engine.gpu.kernels.numbers import LOG2E, ceil_div, power_of_two
from penstock.engine.gpu.kernels.thresholds import find_thresholds, load_largest, scaled
from penstock.engine.layers.sampler import NO_TOKEN, Parameters

_BLOCK = 4096  # tokens of a chunk
_WARPS = 4
_OFF = tl.constexpr(32.0 + 2.0**-15)  # of the least noise; and what rounding may have made of it
_NO_TOKEN = tl.constexpr(NO_TOKEN)
_NO_INDEX = tl.constexpr(0x7FFFFFFF)


@triton.jit
def _mix64(x):
    x += 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _mix32(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _log2(x, FAST: tl.constexpr):
    """One instruction where there is one; its error is that of rounding a score."""
    if FAST:
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.log2(x)


@triton.jit
def _bits(low, high, ids):
    """Of `penstock.engine.layers.noise`: the halves of a row's key, and tokens."""
    return _mix32(_mix32(ids.to(tl.uint32) ^ low) ^ high)


@triton.jit
def _log2_noise(bits, FAST: tl.constexpr):
    uniform = ((bits >> 1).to(tl.int32).to(tl.float32) + 0.5) * 2.0**-31
    uniform = tl.minimum(uniform, 1.0 - 2.0**-24)
    # -log(1 - u): by its series where 1 - u would lose what makes u.
    series = 1.0 / 5 + uniform * (1.0 / 6 + uniform * (1.0 / 7))
    series = uniform * (
        1.0 + uniform * (1.0 / 2 + uniform * (1.0 / 3 + uniform * (1.0 / 4 + uniform * series)))
    )
    direct = _log2(1.0 - uniform, FAST) * (-1.0 / LOG2E)
    return _log2(tl.where(uniform < 0.125, series, direct), FAST)


@triton.jit
def _least_log2_noise(bits, FAST: tl.constexpr):
    """What it is at least, 32 off: the noise is more than the uniform number that it is made from."""
    return _log2(bits.to(tl.float32), FAST)


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _largest(x, FAST: tl.constexpr):
    """Infinite where one is not a number."""
    if FAST:
        top = tl.reduce(x, 0, _larger)
    else:
        top = tl.max(tl.where(x == x, x, float("inf")))
    return tl.where(top == top, top, float("inf"))


@triton.jit
def _load(row_at, ids, vocab):
    return tl.load(row_at + ids, mask=ids < vocab, other=float("-inf")).to(tl.float32)


@triton.jit
def _log2_weight(x, largest, temperature, threshold, FILTERED: tl.constexpr):
    """Of logits, the probability in proportion to that of the largest."""
    if FILTERED:
        x = scaled(x, largest, temperature)
        return tl.where(x >= threshold, x, float("-inf")) * LOG2E
    else:
        return (x - largest) * (LOG2E / temperature)


@triton.jit
def _race(
    logits_at,
    tops_at,
    scores_at,
    winners_at,
    thresholds_at,
    temperature_at,
    seeds_at,
    slots_at,
    positions_at,
    vocab,
    stride,
    chunks,
    FILTERED: tl.constexpr,
    FAST: tl.constexpr,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
    PDL: tl.constexpr,
):
    """The noise is hardly more than it is at least where it is small, as that of a winner mostly is. So every
    token gets only a bound of its score, in half the instructions, and then those tokens their scores, a
    group at a time, whose bounds reach the best score so far."""
    await_previous(PDL)
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots_at + row)
    temperature = tl.load(temperature_at + slot)
    seed, position = tl.load(seeds_at + slot), tl.load(positions_at + row)
    first = chunk * BLOCK
    places = tl.arange(0, BLOCK)
    ids = first + places
    x = _load(logits_at + row * stride, ids, vocab)
    at = row * chunks + chunk
    top = _largest(x, FAST)
    if not FILTERED:
        tl.store(tops_at + at, top)
    best = top
    if temperature > 0:
        threshold = 0.0
        if FILTERED:
            largest = load_largest(tops_at, row, chunks, CHUNKS)
            threshold = tl.load(thresholds_at + row)
        else:
            # A chunk of nothing but minus infinity: its difference to itself is not a number.
            largest = tl.where(top == float("-inf"), 0.0, top)
        best = tl.full((), float("-inf"), tl.float32)
        winner = tl.full((), _NO_INDEX, tl.int32)
        if _log2_weight(top, largest, temperature, threshold, FILTERED) > float("-inf"):
            key = _mix64(_mix64(seed.to(tl.uint64)) + position.to(tl.uint64))
            # A chunk begins at a multiple of a power of two, so its tokens' numbers are sums without carry.
            low, high = key.to(tl.uint32) ^ first.to(tl.uint32), (key >> 32).to(tl.uint32)
            bound = _log2_weight(x, largest, temperature, threshold, FILTERED)
            bound -= _least_log2_noise(_bits(low, high, places), FAST)
            bounds = tl.max(tl.reshape(bound, (BLOCK // GROUP, GROUP)), axis=1) + _OFF
            groups = tl.arange(0, BLOCK // GROUP)
            highest = tl.max(bounds)
            while (highest >= best) & (highest > float("-inf")):
                group = tl.min(tl.where(bounds == highest, groups, BLOCK))
                members = group * GROUP + tl.arange(0, GROUP)
                score = _load(logits_at + row * stride, first + members, vocab)
                score = _log2_weight(score, largest, temperature, threshold, FILTERED)
                score -= _log2_noise(_bits(low, high, members), FAST)
                found = tl.max(score)
                token = tl.min(tl.where(score == found, first + members, _NO_INDEX))
                token = tl.where(found == best, tl.minimum(token, winner), token)
                winner = tl.where(found >= best, token, winner)
                best = tl.maximum(found, best)
                bounds = tl.where(groups == group, float("-inf"), bounds)
                highest = tl.max(bounds)
    else:
        winner = tl.min(tl.where(x == top, ids, _NO_INDEX))
    tl.store(scores_at + at, best)
    tl.store(winners_at + at, winner)


@triton.jit
def _finish(
    tops_at,
    scores_at,
    winners_at,
    temperature_at,
    slots_at,
    positions_at,
    out_at,
    table_at,
    table_stride,
    chunks,
    FILTERED: tl.constexpr,
    WRITE: tl.constexpr,
    CHUNKS: tl.constexpr,
    PDL: tl.constexpr,
):
    await_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_at + row).to(tl.int64)
    temperature = tl.load(temperature_at + slot)
    chunk = tl.arange(0, CHUNKS)
    at, kept = row * chunks + chunk, chunk < chunks
    top = tl.load(tops_at + at, mask=kept, other=float("-inf"))
    score = tl.load(scores_at + at, mask=kept, other=float("-inf"))
    winner = tl.load(winners_at + at, mask=kept, other=_NO_INDEX)
    largest = tl.max(top)
    if not FILTERED and temperature > 0:
        score += (top - largest) * (LOG2E / temperature)
    token = tl.min(tl.where(score == tl.max(score), winner, _NO_INDEX))
    token = tl.where((tl.abs(largest) < float("inf")) & (token != _NO_INDEX), token, _NO_TOKEN)
    tl.store(out_at + row, token)
    if WRITE:
        position = tl.load(positions_at + row)
        # As in `Slots.append`: no index is below 0, though nobody knows yet that there is no token.
        tl.store(table_at + slot * table_stride + position, tl.maximum(token, 0), mask=position >= 0)


def draw(
    logits: Tensor,
    parameters: Parameters,
    slots: Tensor,
    positions: Tensor,
    *,
    filtered: bool,
    out: Tensor,
    tokens_table: Tensor | None = None,
) -> None:
    """A token for each row of the logits, or NO_TOKEN; written to its slot's row of the table too, NO_TOKEN
    as 0.

    slots, positions: int32 [rows]; a position below 0 is written nowhere. Without `filtered`, top-k, top-p
    and min-p are not looked at.
    """
    rows, vocab = logits.shape
    if rows == 0:
        return
    chunks = ceil_div(vocab, _BLOCK)
    thresholds = None
    if filtered:
        tops, thresholds = find_thresholds(logits, parameters, slots, _BLOCK, _WARPS)
    else:
        tops = logits.new_empty((rows, chunks), dtype=torch.float32)
    scores = torch.empty_like(tops)
    winners = torch.empty_like(tops, dtype=torch.int32)
    shape = power_of_two(chunks)
    _race[(rows, chunks)](
        logits,
        tops,
        scores,
        winners,
        thresholds,
        parameters.temperature,
        parameters.seeds,
        slots,
        positions,
        vocab,
        logits.stride(0),
        chunks,
        FILTERED=filtered,
        FAST=logits.is_cuda,
        CHUNKS=shape,
        BLOCK=_BLOCK,
        GROUP=16 // logits.itemsize,  # what a thread loads at once
        num_warps=_WARPS,
        **overlapped(),
    )
    _finish[(rows,)](
        tops,
        scores,
        winners,
        parameters.temperature,
        slots,
        positions,
        out,
        tokens_table,
        0 if tokens_table is None else tokens_table.stride(0),
        chunks,
        FILTERED=filtered,
        WRITE=tokens_table is not None,
        CHUNKS=shape,
        num_warps=1,
        **overlapped(),
    )
