"""What a step's chunks see of a cache in eight bits, once in sixteen.

Attention reads keys as often as there are tiles of queries, and the matrix unit takes them as they lie in
memory: where many queries follow, it is cheaper to write the cache out once than to convert it in every tile.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.batch import ChunkBatch
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.kernels.numbers import ceil_div, power_of_two

FEWEST_QUERIES = 128  # a sequence, on average: so often must a key be read for its copy to pay
MOST_BYTES = 256 << 20  # of keys and values together, beside the activations that memory is kept for

_ROWS = 64  # vectors of a program
_SEQUENCES = 256  # looked through at once


def pays(query: Tensor, layer: PagedLayer, batch: ChunkBatch) -> bool:
    sequences = batch.slots.shape[0]
    blocks = _most_blocks(layer, batch)
    copied = 2 * blocks * layer.kv_heads * layer.block_size * layer.head_dim * query.element_size()
    return query.shape[0] >= FEWEST_QUERIES * sequences and copied <= MOST_BYTES


def widen(layer: PagedLayer, batch: ChunkBatch, dtype: torch.dtype) -> tuple[PagedLayer, ChunkBatch]:
    """The blocks of the chunks' sequences, one sequence after another, and the batch with tables of those."""
    blocks = _most_blocks(layer, batch)
    sequences = batch.slots.shape[0]
    shape = (blocks, *layer.keys.shape[1:])
    keys = torch.empty(shape, dtype=dtype, device=layer.keys.device)
    values = torch.empty_like(keys)
    tables = torch.empty_like(batch.tables)
    vectors = layer.kv_heads * layer.block_size
    _widen[(blocks, ceil_div(vectors, _ROWS))](
        layer.keys,
        layer.values,
        layer.key_scales,
        layer.value_scales,
        keys,
        values,
        batch.slots,
        batch.starts,
        batch.counts,
        batch.tables,
        tables,
        sequences,
        batch.tables.stride(0),
        tables.stride(0),
        VECTORS=vectors,
        DIM=layer.head_dim,
        PADDED=power_of_two(layer.head_dim),
        BLOCK_SIZE=layer.block_size,
        ROWS=_ROWS,
        SEQUENCES=_SEQUENCES,
        num_warps=4,
    )
    return PagedLayer(keys, values), replace(batch, tables=tables)


def _most_blocks(layer: PagedLayer, batch: ChunkBatch) -> int:
    """No fewer than the sequences have: each may have begun one more than its tokens fill."""
    return batch.seen // layer.block_size + batch.slots.shape[0]


@triton.jit(do_not_specialize=["sequences"])  # it changes from step to step: compiled once for all
def _widen(
    keys, values, key_scales, value_scales, wide_keys, wide_values, slots, starts, counts, tables,
    wide_tables, sequences, table_stride, wide_stride, VECTORS: tl.constexpr, DIM: tl.constexpr,
    PADDED: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, SEQUENCES: tl.constexpr,
):  # fmt: skip
    # Whose block it is, were the blocks of all sequences laid one after another.
    own = tl.program_id(0)
    sequence = 0
    before = 0  # blocks of earlier sequences
    end = 0
    for base in tl.range(0, sequences, SEQUENCES):
        at = base + tl.arange(0, SEQUENCES)
        there = at < sequences
        lengths = tl.load(starts + at, mask=there, other=0) + tl.load(counts + at, mask=there, other=0)
        ends = end + tl.cumsum((lengths + BLOCK_SIZE - 1) // BLOCK_SIZE, 0)
        passed = there & (ends <= own)
        sequence += tl.sum(passed.to(tl.int32), 0)
        before = tl.maximum(before, tl.max(tl.where(passed, ends, 0), 0))
        end = tl.max(ends, 0)
    if own >= end:
        return
    slot = tl.load(slots + sequence).to(tl.int64)
    block = tl.load(tables + slot * table_stride + own - before).to(tl.int64)
    if tl.program_id(1) == 0:
        tl.store(wide_tables + slot * wide_stride + own - before, own)

    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, PADDED)
    real = row < VECTORS
    mask = real[:, None] & (dims < DIM)[None, :]
    source = block * VECTORS + row
    inside = source[:, None] * DIM + dims[None, :]
    outside = (own.to(tl.int64) * VECTORS + row)[:, None] * DIM + dims[None, :]
    key = tl.load(keys + inside, mask=mask, other=0.0).to(tl.float32)
    value = tl.load(values + inside, mask=mask, other=0.0).to(tl.float32)
    key *= tl.load(key_scales + source, mask=real, other=0.0)[:, None]
    value *= tl.load(value_scales + source, mask=real, other=0.0)[:, None]
    tl.store(wide_keys + outside, key.to(wide_keys.dtype.element_ty), mask=mask)
    tl.store(wide_values + outside, value.to(wide_values.dtype.element_ty), mask=mask)
