"""How matmuls for few rows are cut into programs, as measured on an H200."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_WARP = 32  # threads
_LOAD = 16  # bytes that a thread loads at once
_MANY = 16384  # rows of a weight of which every processor gets many programs


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


def choose_row(count: int, size: int, dtype: torch.dtype) -> RowShape:
    vector = _LOAD // dtype.itemsize
    narrow = dtype.itemsize == 1
    if count < 2048:
        # Few rows of the weight: small programs, so that every processor has some.
        block_n, depth, warps = 2, 3, 4
    elif size <= 2048:
        # Short rows: all of one is on its way at once.
        block_n, depth, warps = 4, 4, max(1, size // (4 * _WARP * vector))
    elif count <= size:
        # Wide weights give the fewest programs, so each keeps more on its way.
        block_n = 8
        depth, warps = (1, 4) if narrow and size < 8192 else (2, 2 if narrow else 4)
    elif narrow:
        block_n, depth, warps = (8, 2, 4) if count >= _MANY else (4, 1, 4)
    else:
        block_n, depth, warps = 4, 1, 8
    while warps > 1 and _WARP * vector * warps // 2 >= size:
        warps //= 2
    return RowShape(block_n, _WARP * vector * warps, depth, warps)


def choose_dot(count: int, size: int, dtype: torch.dtype, *, rows: int) -> DotShape:
    padded = max(8, 1 << (rows - 1).bit_length())
    narrow = dtype.itemsize == 1
    fewest = padded == 8
    # `run`: bytes of a row of the weight in one piece of a tile.
    if count >= _MANY:
        block_n, run, split, stages = 64 if narrow and fewest else 128, 128, 4, 3
    elif count < 2048:
        block_n, run, split, stages = 16, 256, 4, 4
    elif count <= size:
        if narrow:
            block_n, run, split, stages = (16, 256, 4, 4) if fewest else (32, 256, 4, 3)
        else:
            block_n, run, split, stages = (32, 128, 8, 4) if fewest else (16, 256, 4, 4)
    elif narrow:
        block_n, run, split, stages = 32, 128, 4, 4
    elif fewest or count < 6144:
        block_n, run, split, stages = 32, 256, 4, 3
    else:
        block_n, run, split, stages = 64, 128, 4, 4
    block_k = run // dtype.itemsize
    while block_k > 32 and block_k * split // 2 >= size:
        block_k //= 2
    return DotShape(padded, block_n, block_k, split, stages, warps=split)
