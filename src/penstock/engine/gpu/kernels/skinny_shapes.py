"""How matmuls for few rows are cut into programs, as measured on an H200."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_WARP = 32  # threads
_LOAD = 16  # bytes that a thread loads at once


@dataclass(frozen=True, slots=True)
class RowShape:
    """For one row. All threads of a program lie along K, so a thread's activations serve all its weights."""

    block_n: int  # rows of the weight in a program
    block_k: int  # columns in a tile
    depth: int  # tiles on their way at once
    warps: int


@dataclass(frozen=True, slots=True)
class DotShape:
    """For several rows, on the tensor cores."""

    rows: int  # activations, padded to what the tensor cores take
    block_n: int
    block_k: int  # columns in one of the `split` pieces of a tile
    split: int
    stages: int
    warps: int


def choose_row(count: int, size: int, dtype: torch.dtype, *, gated: bool) -> RowShape:
    vector = _LOAD // dtype.itemsize
    warps = 4
    while warps > 1 and _WARP * vector * warps // 2 >= size:
        warps //= 2
    block_k = _WARP * vector * warps
    block_n = 8 if gated or count >= 65536 else 4
    # Few rows of the weight: smaller programs, so that every processor has some.
    while block_n > 2 and count // block_n < 512:
        block_n //= 2
    return RowShape(block_n, block_k, depth=4 if dtype.itemsize > 1 else 2, warps=warps)


def choose_dot(count: int, size: int, dtype: torch.dtype, *, rows: int, gated: bool) -> DotShape:
    padded = max(8, 1 << (rows - 1).bit_length())
    block_n = 16 if padded <= 16 else 32
    split = 4
    block_k = 512 // dtype.itemsize // split * 2
    while block_k > 32 and block_k * split // 2 >= size:
        block_k //= 2
    return DotShape(padded, block_n, block_k, split, stages=4 if padded <= 16 else 3, warps=split)
