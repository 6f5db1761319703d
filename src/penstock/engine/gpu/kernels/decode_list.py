"""The tiles that the decodes of a step read, listed once for all of its layers.

The list goes through the sequences, tile by tile; a layer reads it once for each KV head. Layers that see
only a window have a list of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.batch import DecodeBatch
from penstock.engine.gpu.kernels.launch import await_previous, overlapped
from penstock.engine.gpu.kernels.numbers import power_of_two

_AT_ONCE = 64  # entries that a program writes at a time
ENTRY = tl.constexpr(4)  # numbers of an entry
SPAN_BITS = tl.constexpr(16)
SPAN_MASK = tl.constexpr(0xFFFF)


@dataclass(frozen=True, slots=True)
class TileList:
    """Room for the list of a step; the next step may use it again."""

    # int32 [tiles, 4]: where the tile lies: the place of its first vector for head 0, or of its first block's
    # number among the tables where a tile is several blocks; its sequence; what of it is seen: the first
    # position << 16 | the number of positions up to the last; whether it is its sequence's last.
    entries: Tensor
    # int32 [1 + sequences, 2]: tiles of all and most of one; then each sequence's first tile and its number.
    runs: Tensor

    @classmethod
    def of(cls, sequences: int, longest: int, tile: int, device: torch.device) -> TileList:
        """Room for so many sequences of up to `longest` tokens."""
        # One more than a sequence can fill: a window need not begin with a tile.
        most = sequences * (-(-longest // tile) + 1)
        return cls(
            torch.zeros((most, ENTRY.value), dtype=torch.int32, device=device),
            torch.zeros((1 + sequences, 2), dtype=torch.int32, device=device),
        )


@triton.jit(do_not_specialize=["sequences"])
def _list_tiles(
    lengths,
    slots,
    tables,
    table_row,
    shared_lengths,
    entries,
    runs,
    sequences,
    SHARED: tl.constexpr,
    WINDOW: tl.constexpr,
    MOST_SEQUENCES: tl.constexpr,
    KV_HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    AT_ONCE: tl.constexpr,
    PDL: tl.constexpr,
):
    await_previous(PDL)
    sequence = tl.program_id(0)
    everyone = tl.arange(0, MOST_SEQUENCES)
    there = everyone < sequences
    seen = tl.load(lengths + everyone, mask=there, other=0)
    starts = tl.zeros((MOST_SEQUENCES,), tl.int32)
    if SHARED:
        starts = tl.load(shared_lengths + everyone, mask=there, other=0)
    if WINDOW > 0:
        starts = tl.maximum(starts, seen - WINDOW)
    # Padding has one tile, an empty one.
    tiles = tl.where(there, tl.maximum(tl.cdiv(seen, TILE) - starts // TILE, 1), 0)
    before = tl.sum(tl.where(everyone < sequence, tiles, 0), 0)
    count = tl.sum(tl.where(everyone == sequence, tiles, 0), 0)
    start = tl.sum(tl.where(everyone == sequence, starts, 0), 0)
    length = tl.sum(tl.where(everyone == sequence, seen, 0), 0)
    tl.store(runs + 2 + sequence * 2, before)
    tl.store(runs + 3 + sequence * 2, count)
    if sequence == 0:
        tl.store(runs, tl.sum(tiles, 0))
        tl.store(runs + 1, tl.max(tiles, 0))

    slot = tl.load(slots + sequence)
    table = tables + slot.to(tl.int64) * table_row
    for origin in range(0, count, AT_ONCE):
        number = origin + tl.arange(0, AT_ONCE)
        mask = number < count
        position = (start // TILE + number) * TILE
        if TILE <= BLOCK:
            block = tl.load(table + position // BLOCK, mask=mask & (position < length), other=0)
            place = block * (KV_HEADS * BLOCK) + position % BLOCK
        else:
            place = slot * table_row + position // BLOCK
        first = tl.maximum(start - position, 0)
        end = tl.maximum(tl.minimum(length - position, TILE), 0)
        entry = entries + (before + number) * ENTRY
        tl.store(entry, place, mask=mask)
        tl.store(entry + 1, sequence, mask=mask)
        tl.store(entry + 2, (first << SPAN_BITS) | end, mask=mask)
        tl.store(entry + 3, (number == count - 1).to(tl.int32), mask=mask)


def list_tiles(
    batch: DecodeBatch, *, kv_heads: int, block_size: int, tile: int, window: int | None, listed: TileList
) -> None:
    """What each sequence sees alone, in tiles of so many tokens."""
    sequences = batch.slots.shape[0]
    _list_tiles[(sequences,)](
        batch.lengths,
        batch.slots,
        batch.tables,
        batch.tables.stride(0),
        None if batch.shared is None else batch.shared.lengths,
        listed.entries,
        listed.runs,
        sequences,
        SHARED=batch.shared is not None,
        WINDOW=window or 0,
        MOST_SEQUENCES=power_of_two(listed.runs.shape[0] - 1),
        KV_HEADS=kv_heads,
        BLOCK=block_size,
        TILE=tile,
        AT_ONCE=_AT_ONCE,
        num_warps=4,
        **overlapped(),
    )
