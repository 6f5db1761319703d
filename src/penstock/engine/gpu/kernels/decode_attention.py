"""Attention of sequences with one query each over their paged cache, bound by memory alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from penstock.engine.gpu.batch import DecodeBatch
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.kernels.decode_own import attend_own
from penstock.engine.gpu.kernels.decode_prefixes import attend_prefixes
from penstock.engine.gpu.kernels.decode_tiles import LEAST_ROWS, TYPES
from penstock.engine.gpu.kernels.launch import overlapped
from penstock.engine.gpu.kernels.numbers import LOG2E

MERGED_AT_ONCE = 8  # partial results that a merge holds in registers
MOST_PROGRAMS = 8  # for each processor
FEW_SEQUENCES = 16
MANY_SEQUENCES = 96  # their lengths even out, so that three programs a processor pay


@dataclass(frozen=True, slots=True)
class Shape:
    """How a launch is laid out, chosen by the bytes of a token as measured on an H200."""

    tile: int  # tokens read at once
    warps: int
    stages: int
    programs: int  # for each processor
    registers: int | None = None  # of a thread at most, where more programs would fit
    whole: int = 4  # tiles that are read sooner than partial results could be merged


@dataclass(frozen=True, slots=True)
class Workspace:
    """Partial results of a launch; the next launch on the stream may use it again."""

    accumulators: Tensor  # float32 [2 pieces a program, heads, padded head size]
    bounds: Tensor  # float32 [as above, 2] maximum and sum of the weights
    shared_accumulators: Tensor  # float32 [rows, heads, splits, padded head size]
    shared_bounds: Tensor
    arrivals: Tensor  # int32 [rows, heads], zero between launches


def choose_shape(layer: PagedLayer, sequences: int, shared: bool) -> Shape:
    """As many programs as a processor holds at once: more would only cut heads into more pieces."""
    if layer.keys.dtype == torch.float32:
        return Shape(tile=32, warps=8, stages=2, programs=4)
    if layer.head_dim > 128:
        return Shape(tile=32, warps=4, stages=3, programs=4)
    if layer.key_scales is not None:
        return Shape(tile=64, warps=4, stages=3, programs=4, registers=128)
    if layer.head_dim <= 64:
        return Shape(tile=64, warps=4, stages=3, programs=4)
    if shared:  # heads have few tiles left: what counts is how many of them are read at the same time
        return Shape(tile=32, warps=4, stages=3, programs=4, registers=128, whole=8)
    if sequences >= MANY_SEQUENCES:
        return Shape(tile=64, warps=4, stages=2, programs=3, registers=128)
    return Shape(tile=64, warps=4, stages=3, programs=2)


@cache
def processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def workspace(rows: int, heads: int, head_dim: int, splits: int, device: torch.device) -> Workspace:
    padded = triton.next_power_of_2(head_dim)
    pieces = 2 * MOST_PROGRAMS * processors(device)

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=device)

    return Workspace(
        empty(pieces, heads, padded),
        empty(pieces, heads, 2),
        empty(rows, heads, splits, padded),
        empty(rows, heads, splits, 2),
        torch.zeros(rows, heads, dtype=torch.int32, device=device),
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
    """out [sequences, heads * dim] = what each query of [sequences, heads, dim] attends to."""
    sequences, heads, dim = query.shape
    shared = batch.shared
    shape = choose_shape(layer, sequences, shared is not None)
    scaled = layer.key_scales is not None
    group = heads // layer.kv_heads
    wide = triton.next_power_of_2(group)
    programs = shape.programs * processors(query.device)
    few = sequences <= FEW_SEQUENCES and 2 * sequences * layer.kv_heads <= programs
    if shared is not None:
        attend_prefixes(
            query, layer, batch, shared, room.shared_accumulators, room.shared_bounds,
            scale=scale, softcap=softcap, window=window,
        )  # fmt: skip
    attend_own[(programs,)](
        query,
        query.stride(0),
        query.stride(1),
        layer.keys.view(torch.int16) if scaled else layer.keys,
        layer.values.view(torch.int16) if scaled else layer.values,
        layer.key_scales,
        layer.value_scales,
        batch.tables,
        batch.tables.stride(0),
        batch.lengths,
        batch.slots,
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
        ALIGNED=few,
        BY_HEAD=shared is not None and not few and sequences * layer.kv_heads <= programs,
        MOST_SEQUENCES=_most_sequences(sequences),
        PIECES=MERGED_AT_ONCE,
        WHOLE=shape.whole,
        KV_HEADS=layer.kv_heads,
        GROUP=group,
        WIDE=wide,
        ROWS=max(LEAST_ROWS, wide),
        DIM=dim,
        PADDED=triton.next_power_of_2(dim),
        BLOCK=layer.block_size,
        TILE=shape.tile,
        SCALED=scaled,
        TYPE=tl.float16 if scaled else TYPES[layer.keys.dtype],
        CAPPED=softcap is not None,
        WINDOW=window or 0,
        num_warps=shape.warps,
        num_stages=shape.stages,
        **overlapped(),
        **({} if shape.registers is None else {"maxnreg": shape.registers}),
    )


def _most_sequences(sequences: int) -> int:
    """What a kernel is compiled for: few sizes, but one sequence needs no search for who is whose."""
    if sequences <= FEW_SEQUENCES:
        return 1 if sequences == 1 else FEW_SEQUENCES
    return max(256, triton.next_power_of_2(sequences))
