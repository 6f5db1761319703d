"""How matmuls for some dozens of rows are cut into programs, as measured on an H200.

The tiles of a weight, one after the other, each of them `steps` long, are one line that is cut into as many
equal stretches as there are programs. A tile that is cut is summed up by whoever finishes its last piece.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

PANEL = 128  # bytes of a row of the weight in one step: the widest swizzle
MOST_ROWS = 128
MOST_TILES = 8192  # of one weight


@dataclass(frozen=True, slots=True)
class NarrowShape:
    rows: int  # activations, padded to a power of two
    tile: int  # rows of the weight
    stages: int  # steps on their way at once
    programs: int
    warps: int  # that multiply; one more loads
    ahead: int = 0  # steps behind those whose weights wait in the second-level cache for the kernel before

    def steps(self, size: int, dtype: torch.dtype) -> int:
        """Into how many steps a tile is cut along K."""
        return -(-size * dtype.itemsize // PANEL)

    def tiles(self, count: int) -> int:
        return -(-count // self.tile)


def choose(count: int, size: int, dtype: torch.dtype, *, rows: int, processors: int) -> NarrowShape:
    padded = max(16, 1 << (rows - 1).bit_length())
    tile = 128
    stage = (tile + padded) * PANEL
    stages = max(3, min(12, 108 * 1024 // stage))
    # No more programs than there are steps, and no cut tiles where whole ones are as even.
    tiles = -(-count // tile)
    steps = -(-size * dtype.itemsize // PANEL)
    programs = min(processors, tiles * steps)
    return NarrowShape(padded, tile, stages, programs, warps=4)
