"""Random numbers that are a pure function of seed, position and token id.

Preempting, resuming, batching or speculating on a request therefore changes none of its draws.
"""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15
_MASK64 = 2**64 - 1


def choice_seed(seed: int, index: int) -> int:
    """The seed of the index-th of n choices, as a signed 64-bit integer; choice 0 keeps the request's."""
    return _signed(seed + index * _GOLDEN, 64)


def exponential_noise(seeds: Tensor, positions: Tensor, vocab_size: int) -> Tensor:
    """[rows, vocabulary] draws from the exponential distribution of rate 1.

    seeds, positions: int64 [rows]. Token v wins a race with rate p(v) when noise(v) / p(v) is the
    smallest, which happens with probability p(v).
    """
    key = _mix64(_mix64(seeds) + positions)
    low, high = key.to(torch.int32), (key >> 32).to(torch.int32)
    bits = torch.arange(vocab_size, dtype=torch.int32, device=seeds.device) ^ low[:, None]
    bits = _mix32(_mix32(bits) ^ high[:, None])
    # The winners' noise is small, and there float32 is fine enough for the unlikeliest tokens to win
    # as seldom as they should.
    uniform = (_shift(bits, 1, 32).float() + 0.5) * 2.0**-31
    # What rounds up to 1 would be infinite, and a token that is alone could not win any more.
    return uniform.clamp_(max=1 - 2.0**-24).neg_().log1p_().neg_()


def _mix64(x: Tensor) -> Tensor:
    """The finalizer of splitmix64; int64 products wrap."""
    x = x + _signed(_GOLDEN, 64)
    x = (x ^ _shift(x, 30, 64)) * _signed(0xBF58476D1CE4E5B9, 64)
    x = (x ^ _shift(x, 27, 64)) * _signed(0x94D049BB133111EB, 64)
    return x ^ _shift(x, 31, 64)


def _mix32(x: Tensor) -> Tensor:
    """A 32-bit finalizer of low bias; int32 products wrap."""
    x = (x ^ _shift(x, 16, 32)) * 0x7FEB352D
    x = (x ^ _shift(x, 15, 32)) * _signed(0x846CA68B, 32)
    return x ^ _shift(x, 16, 32)


def _shift(x: Tensor, by: int, width: int) -> Tensor:
    """A logical right shift; torch's own copies the sign bit."""
    return (x >> by) & ((1 << (width - by)) - 1)


def _signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value
