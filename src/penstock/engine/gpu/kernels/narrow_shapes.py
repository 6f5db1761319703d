"""How matmuls for some dozens of rows are cut into programs, as measured on an H200.

The tiles of a weight, one after the other, each of them `steps` long, are one line that is cut into as many
equal stretches as there are programs. A tile that is cut is summed up by whoever finishes its last piece.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

PANEL = 128  # bytes of a row that the matrix unit takes from one place: the widest swizzle
MOST_ROWS = 128
MOST_TILES = 8192  # of one weight
_MANY = 16384  # rows of a weight
# Bytes, so many that a processor takes one program: where two fit, some get two of a kernel and some none.
_RING = 208 * 1024


@dataclass(frozen=True, slots=True)
class NarrowShape:
    rows: int  # activations, padded to a power of two
    tile: int  # rows of the weight
    stages: int  # steps on their way at once
    programs: int
    warps: int  # that multiply; one more loads
    panels: int = 1  # of a row of the weight in one step
    ahead: int = 0  # steps behind those whose weights wait in the second-level cache for the kernel before

    def steps(self, size: int, dtype: torch.dtype) -> int:
        """Into how many steps a tile is cut along K."""
        return -(-size * dtype.itemsize // (PANEL * self.panels))

    def tiles(self, count: int) -> int:
        return -(-count // self.tile)


def choose(
    count: int, size: int, dtype: torch.dtype, *, rows: int, gated: bool = False, processors: int
) -> NarrowShape:
    padded = max(16, 1 << (rows - 1).bit_length())
    # Weights with few rows have small tiles, which are cut into fewer pieces. A gated one is of two halves,
    # and the matrix unit takes no fewer than 64 rows.
    tile = 64 if count < _MANY and padded <= 64 and not gated else 128
    panels = 2  # neighbours in memory, asked for together
    while panels > 1 and size * dtype.itemsize <= panels * PANEL:
        panels //= 2
    stages = min(12, _RING // ((tile + padded) * panels * PANEL))
    tiles, steps = -(-count // tile), -(-size * dtype.itemsize // (panels * PANEL))
    programs = min(_level(tiles, processors), tiles * steps)
    return NarrowShape(padded, tile, stages, programs, warps=4, panels=panels)


def _level(tiles: int, processors: int) -> int:
    """Programs that all have whole tiles or parts of one; all processors where that leaves many idle."""
    for programs in range(processors, processors * 2 // 3, -1):
        if tiles % programs == 0 or programs % tiles == 0:
            return programs
    return processors
