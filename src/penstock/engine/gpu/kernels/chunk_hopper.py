"""Attention of prompt chunks for Hopper, caches in sixteen bits: one warp loads, two warpgroups compute.

A program stays on its processor and takes one tile after another, so that the loads of the next tile run
while the last one is finished. Each warpgroup has half of a tile's rows and asks the matrix unit for the next
scores before it weighs the current ones, so that exponentials and products overlap. Keys are read backwards:
first those on the diagonal, last those at the window's edge.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from penstock.engine.gpu.batch import ChunkBatch
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.kernels.chunk_loads import PANEL, STAGES, load_tiles
from penstock.engine.gpu.kernels.chunk_products import ahead, weigh_tiles
from penstock.engine.gpu.kernels.numbers import ceil_div, power_of_two

ROWS = 128  # of a tile: queries times heads of a group, half of them for each warpgroup

_LAYOUT = gl.NVMMASharedLayout(128, 16)


# Gluon promises no stable interface: these are the versions of Triton that the kernel compiles with.
VERSIONS = ("3.6", "3.7", "3.8")


def fits(query: Tensor, layer: PagedLayer) -> bool:
    """Whether the kernel below takes these, once the cache is in the type of the queries; block sizes are
    powers of two."""
    return (
        triton.__version__.startswith(VERSIONS)
        and query.element_size() == 2
        and query.shape[1] // layer.kv_heads <= ROWS
        and layer.block_size % 8 == 0
        and query.is_cuda
        and torch.cuda.get_device_capability(query.device)[0] == 9
    )


def attend(
    query: Tensor,
    layer: PagedLayer,
    batch: ChunkBatch,
    tile: int,
    *,
    scale: float,
    softcap: float | None,
    window: int | None,
    out: Tensor,
) -> None:
    heads, head_dim = query.shape[1], query.shape[2]
    group = heads // layer.kv_heads
    padded = max(power_of_two(head_dim), PANEL.value)
    block_n = 64 if padded > 128 else 128
    queries = ROWS // group
    pieces = ceil_div(tile, queries)
    work = batch.tiles.shape[0] * pieces * layer.kv_heads
    processors = torch.cuda.get_device_properties(query.device).multi_processor_count
    box = [min(layer.block_size, block_n), PANEL.value]
    _attend[(min(work, processors),)](
        query,
        TensorDescriptor.from_tensor(layer.keys.view(-1, head_dim), box, _LAYOUT),
        TensorDescriptor.from_tensor(layer.values.view(-1, head_dim), box, _LAYOUT),
        out,
        batch.slots,
        batch.starts,
        batch.counts,
        batch.rows,
        batch.tiles,
        batch.tables,
        work,
        query.stride(0),
        query.stride(1),
        out.stride(0),
        batch.tables.stride(0),
        scale,
        softcap or 0.0,
        window or 0,
        KV_HEADS=layer.kv_heads,
        GROUP=group,
        DIM=head_dim,
        PADDED=padded,
        BLOCK_SIZE=layer.block_size,
        BLOCK_N=block_n,
        QUERIES=queries,
        PIECES=pieces,
        TILE=tile,
        CAPPED=softcap is not None,
        WINDOWED=window is not None,
        num_warps=4,
        maxnreg=168,
    )


@gluon.jit(do_not_specialize=["work"])  # it changes from step to step: compiled once for all
def _attend(
    query, keys, values, out, slots, starts, counts, rows, tiles, tables, work, query_stride, head_stride,
    out_stride, table_stride, scale, softcap, window, KV_HEADS: gl.constexpr, GROUP: gl.constexpr,
    DIM: gl.constexpr, PADDED: gl.constexpr, BLOCK_SIZE: gl.constexpr, BLOCK_N: gl.constexpr,
    QUERIES: gl.constexpr, PIECES: gl.constexpr, TILE: gl.constexpr, CAPPED: gl.constexpr,
    WINDOWED: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = keys.dtype
    LAYOUT: gl.constexpr = keys.layout
    TURNS: gl.constexpr = 2 if ahead(PADDED) else 1
    first_queries = gl.allocate_shared_memory(dtype, [TURNS, 64, PADDED], LAYOUT)
    second_queries = gl.allocate_shared_memory(dtype, [TURNS, 64, PADDED], LAYOUT)
    key_tiles = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, PADDED], LAYOUT)
    value_tiles = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, PADDED], LAYOUT)
    full_keys = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full_values = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free_keys = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free_values = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full_keys.index(stage), count=1)
        mbarrier.init(full_values.index(stage), count=1)
        mbarrier.init(free_keys.index(stage), count=2)
        mbarrier.init(free_values.index(stage), count=2)
    hopper.fence_async_shared()
    gl.warp_specialize(
        [
            (weigh_tiles, (
                query, out, starts, counts, rows, tiles, work, query_stride, head_stride, out_stride, scale,
                softcap, window, first_queries, key_tiles, value_tiles, full_keys, full_values, free_keys,
                free_values, 0, KV_HEADS, GROUP, DIM, PADDED, BLOCK_N, QUERIES, PIECES, TILE, CAPPED,
                WINDOWED,
            )),
            (weigh_tiles, (
                query, out, starts, counts, rows, tiles, work, query_stride, head_stride, out_stride, scale,
                softcap, window, second_queries, key_tiles, value_tiles, full_keys, full_values, free_keys,
                free_values, 1, KV_HEADS, GROUP, DIM, PADDED, BLOCK_N, QUERIES, PIECES, TILE, CAPPED,
                WINDOWED,
            )),
            (load_tiles, (
                keys, values, slots, starts, counts, tiles, tables, work, table_stride, window, key_tiles,
                value_tiles, full_keys, full_values, free_keys, free_values, KV_HEADS, PADDED, BLOCK_SIZE,
                BLOCK_N, QUERIES, PIECES, TILE, WINDOWED,
            )),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
