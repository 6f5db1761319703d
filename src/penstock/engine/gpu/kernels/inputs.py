"""The first kernel of a decode step: what its rows read and where they write, from slots alone."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.kernels.launch import await_previous, overlapped
from penstock.engine.gpu.kernels.numbers import ceil_div

_ROWS = 32  # a program


@triton.jit(do_not_specialize=["rows", "scratch"])
def _gather_inputs(
    table_at,
    blocks_at,
    slots_at,
    starts_at,
    tokens_at,
    positions_at,
    places_at,
    lengths_at,
    rows,
    table_stride,
    blocks_stride,
    scratch,
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,
    PDL: tl.constexpr,
):
    await_previous(PDL)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    kept = row < rows
    start = tl.load(starts_at + row, mask=kept, other=-1)
    used = start >= 0
    slot = tl.load(slots_at + row, mask=used, other=0).to(tl.int64)
    token = tl.load(table_at + slot * table_stride + start, mask=used, other=0)
    block = tl.load(blocks_at + slot * blocks_stride + start // BLOCK_SIZE, mask=used, other=0).to(tl.int64)
    place = tl.where(used, block * BLOCK_SIZE + start % BLOCK_SIZE, scratch)
    tl.store(tokens_at + row, tl.maximum(token, 0), mask=kept)
    tl.store(positions_at + row, tl.maximum(start, 0), mask=kept)
    tl.store(places_at + row, place, mask=kept)
    tl.store(lengths_at + row, start + 1, mask=kept)


def gather_inputs(
    tokens_table: Tensor,
    block_table: Tensor,
    slots: Tensor,
    starts: Tensor,
    *,
    block_size: int,
    scratch: int,
    tokens: Tensor,
    positions: Tensor,
    places: Tensor,
    lengths: Tensor,
) -> None:
    """Row i is the token of slot slots[i] at position starts[i]; below 0 it is padding and goes to `scratch`.

    A token that could not be drawn is read as 0: what comes of it is thrown away.
    """
    rows = slots.shape[0]
    _gather_inputs[(ceil_div(rows, _ROWS),)](
        tokens_table,
        block_table,
        slots,
        starts,
        tokens,
        positions,
        places,
        lengths,
        rows,
        tokens_table.stride(0),
        block_table.stride(0),
        scratch,
        BLOCK_SIZE=block_size,
        ROWS=_ROWS,
        num_warps=1,
        **overlapped(),
    )
