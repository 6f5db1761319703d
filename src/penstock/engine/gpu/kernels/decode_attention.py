"""Attention of sequences with one query each over their paged cache, bound by memory alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from penstock.engine.gpu.batch import DecodeBatch
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.kernels.decode_list import TileList, list_tiles
from penstock.engine.gpu.kernels.decode_own import attend_own
from penstock.engine.gpu.kernels.decode_prefixes import attend_prefixes
from penstock.engine.gpu.kernels.decode_tiles import LEAST_ROWS, TYPES
from penstock.engine.gpu.kernels.launch import overlapped
from penstock.engine.gpu.kernels.numbers import LOG2E, power_of_two

MOST_SPLITS = 16  # of a shared prefix
MERGED_AT_ONCE = 8  # partial results that a merge holds in registers
MOST_PROGRAMS = 4  # for each processor
FEW_SEQUENCES = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """How a launch is laid out, chosen by the bytes of a token as measured on an H200."""

    tile: int  # tokens read at once
    warps: int
    stages: int
    programs: int  # for each processor
    registers: int | None = None  # of a thread at most, where more programs would fit
    whole: int = 2  # tiles that are read sooner than partial results could be merged


LEAST_TILE = 32  # of all shapes


@dataclass(frozen=True, slots=True)
class Workspace:
    """Partial results of a launch; the next launch on the stream may use it again."""

    accumulators: Tensor  # float32 [2 pieces a program, heads (of one group at most), padded head size]
    bounds: Tensor  # float32 [as above, 2] maximum and sum of the weights
    shared_accumulators: Tensor  # float32 [rows, heads, splits, padded head size]
    shared_bounds: Tensor
    arrivals: Tensor  # int32 [rows, heads], zero between launches
    lists: Mapping[int | None, TileList]  # by the window of a layer; None: it sees everything


def choose_shape(layer: PagedLayer, shared: bool) -> Shape:
    """As many programs as a processor holds at once: more would only cut heads into more pieces."""
    if layer.keys.dtype == torch.float32:
        return Shape(tile=32, warps=8, stages=2, programs=4)
    if layer.head_dim > 128:
        return Shape(tile=32, warps=4, stages=3, programs=4)
    if layer.key_scales is not None:
        # Not four warps: with the asynchronous products that these would use, of keys in registers and of
        # queries that change within the loop, Triton 3.6 computes rubbish. Two are faster besides.
        return Shape(tile=64, warps=2, stages=3, programs=4)
    if layer.head_dim <= 64:
        return Shape(tile=64, warps=4, stages=3, programs=4)
    if shared:  # heads have few tiles left: what counts is how many of them are read at the same time
        return Shape(tile=32, warps=4, stages=3, programs=4, registers=128, whole=8)
    return Shape(tile=64, warps=4, stages=2, programs=3)


@cache
def processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def workspace(
    rows: int,
    heads: int,
    head_dim: int,
    splits: int,
    device: torch.device,
    *,
    longest: int,
    windows: Collection[int | None] = (None,),
) -> Workspace:
    """For batches of up to so many sequences of up to `longest` tokens."""
    padded = power_of_two(head_dim)
    pieces = 2 * MOST_PROGRAMS * processors(device)

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=device)

    return Workspace(
        empty(pieces, heads, padded),
        empty(pieces, heads, 2),
        empty(rows, heads, splits, padded),
        empty(rows, heads, splits, 2),
        torch.zeros(rows, heads, dtype=torch.int32, device=device),
        {
            window: TileList.of(rows, min(longest, window or longest), LEAST_TILE, device)
            for window in windows
        },
    )


def begin_decodes(layer: PagedLayer, batch: DecodeBatch, room: Workspace) -> None:
    """What layers like this one must know of the batch, once for all of them."""
    shape = choose_shape(layer, batch.shared is not None)
    for window, listed in room.lists.items():
        list_tiles(
            batch,
            kv_heads=layer.kv_heads,
            block_size=layer.block_size,
            tile=shape.tile,
            window=window,
            listed=listed,
        )


def attend_decodes(
    query: Tensor,
    layer: PagedLayer,
    batch: DecodeBatch,
    *,
    scale: float,
    softcap: float | None = None,
    window: int | None = None,
    room: Workspace,
    out: Tensor,
) -> None:
    """out [sequences, heads * dim] = what each query of [sequences, heads, dim] attends to.

    `begin_decodes` was called for the batch before."""
    sequences, heads, dim = query.shape
    shared = batch.shared
    shape = choose_shape(layer, shared is not None)
    scaled = layer.key_scales is not None
    group = heads // layer.kv_heads
    wide = power_of_two(group)
    programs = shape.programs * processors(query.device)
    listed = room.lists[window]
    if shared is not None:
        attend_prefixes(
            query, layer, batch, shared, room.shared_accumulators, room.shared_bounds,
            scale=scale, softcap=softcap, window=window,
        )  # fmt: skip
    # Eight bits: two dims at a time, which the matrix unit then multiplies by even and by odd ones.
    read = query.view(torch.int32 if query.itemsize == 2 else torch.int64) if scaled else query
    attend_own[(programs,)](
        read,
        read.stride(0),
        read.stride(1),
        layer.keys.view(torch.int16) if scaled else layer.keys,
        layer.values.view(torch.int16) if scaled else layer.values,
        layer.key_scales,
        layer.value_scales,
        batch.tables,
        listed.entries,
        listed.runs,
        shared.lengths if shared is not None else None,
        out,
        room.accumulators,
        room.bounds,
        room.shared_accumulators,
        room.shared_bounds,
        room.arrivals,
        sequences,
        shared.splits if shared is not None else 0,
        scale if softcap is not None else scale * LOG2E.value,
        softcap or 1.0,
        SHARED=shared is not None,
        FEW=FEW_SEQUENCES,
        PIECES=MERGED_AT_ONCE,
        MOST_SPLITS=MOST_SPLITS,
        WHOLE=shape.whole,
        KV_HEADS=layer.kv_heads,
        GROUP=group,
        WIDE=wide,
        ROWS=max(LEAST_ROWS, wide),
        DIM=dim,
        PADDED=power_of_two(dim),
        BLOCK=layer.block_size,
        TILE=shape.tile,
        SCALED=scaled,
        QUERY=TYPES[query.dtype],
        CAPPED=softcap is not None,
        WINDOW=window or 0,
        num_warps=shape.warps,
        num_stages=shape.stages,
        **overlapped(),
        **({} if shape.registers is None else {"maxnreg": shape.registers}),
    )
