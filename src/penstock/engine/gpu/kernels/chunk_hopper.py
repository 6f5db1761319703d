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
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from penstock.engine.gpu.batch import ChunkBatch
from penstock.engine.gpu.cache import PagedLayer

LOG2E = gl.constexpr(1.4426950408889634)
# The score of what a row does not see. Not minus infinity: a row that has seen nothing yet gets rubbish that
# its first key multiplies by zero. A power of two, since its product with any scale must be exact: the fused
# multiply-add that subtracts the largest score would keep what rounding lost, 1e20 and more, and overflow.
HIDDEN = gl.constexpr(-(2.0**100))
ROWS = gl.constexpr(128)  # of a tile: queries times heads of a group, half of them for each warpgroup
PANEL = gl.constexpr(64)  # elements of a vector that one copy takes: 128 bytes, the widest swizzle

_LAYOUT = gl.NVMMASharedLayout(128, 16)


def fits(query: Tensor, layer: PagedLayer) -> bool:
    """Whether the kernel below takes these, once the cache is in the type of the queries; block sizes are
    powers of two."""
    return (
        query.element_size() == 2
        and query.shape[1] // layer.kv_heads <= ROWS.value
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
    block_n: int | None = None,
    stages: int = 2,
    held: bool = True,
    ahead: bool = True,
) -> None:
    heads, head_dim = query.shape[1], query.shape[2]
    group = heads // layer.kv_heads
    padded = max(triton.next_power_of_2(head_dim), PANEL.value)
    block_n = block_n or (64 if padded > 128 else 128)
    queries = ROWS.value // group
    pieces = triton.cdiv(tile, queries)
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
        STAGES=stages,
        CAPPED=softcap is not None,
        WINDOWED=window is not None,
        HELD=held,
        AHEAD=ahead and padded <= 128,
        num_warps=4,
        maxnreg=168,
    )


@gluon.jit
def _place(turn, work):
    """Which piece of work a program has in its `turn`. Work is sorted: every second round is dealt backwards,
    so that who got the longest of one gets the shortest of the next."""
    programs = gl.num_programs(0)
    own = gl.program_id(0)
    if turn % 2 == 1:
        own = programs - 1 - own
    return turn * programs + own


@gluon.jit
def _bounds(
    piece_of_work, starts, counts, tiles, window, KV_HEADS: gl.constexpr, BLOCK_N: gl.constexpr,
    QUERIES: gl.constexpr, PIECES: gl.constexpr, TILE: gl.constexpr, WINDOWED: gl.constexpr,
):  # fmt: skip
    """What a piece of work is: tiles of keys low ... high, without the last, none where there is nothing to
    do; those from `clear` on need a mask, and those below `inner`."""
    kv_head = piece_of_work % KV_HEADS
    piece = PIECES - 1 - piece_of_work // KV_HEADS % PIECES
    tile = piece_of_work // (KV_HEADS * PIECES)
    sequence = gl.load(tiles + 2 * tile)
    first = gl.load(tiles + 2 * tile + 1)
    count = gl.load(counts + sequence)
    start = gl.load(starts + sequence)
    stop = gl.minimum(first + TILE, count)
    first += piece * QUERIES
    seen = start + gl.minimum(first + QUERIES, stop)
    high = gl.where(first < stop, (seen + BLOCK_N - 1) // BLOCK_N, 0)
    clear = gl.minimum((start + first + 1) // BLOCK_N, high)
    low = 0
    inner = 0
    if WINDOWED:
        low = gl.maximum(start + first - window + 1, 0) // BLOCK_N
        low = gl.minimum(low, high)
        clear = gl.maximum(clear, low)
        inner = (gl.maximum(seen - window, 0) + BLOCK_N - 1) // BLOCK_N
        inner = gl.minimum(gl.maximum(inner, low), clear)
    return sequence, kv_head, first, stop, start, start + count, low, inner, clear, high


@gluon.jit
def _copy(
    source, table, last_block, tile, kv_head, full, target, KV_HEADS: gl.constexpr, PADDED: gl.constexpr,
    BLOCK_SIZE: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """Have keys or values of one tile copied: a panel of a block at a time. Behind the sequence's last block
    that block comes again, since what the table holds there is not ours."""
    BOX: gl.constexpr = BLOCK_SIZE if BLOCK_SIZE < BLOCK_N else BLOCK_N
    mbarrier.expect(full, BLOCK_N * PADDED * 2)
    for box in gl.static_range(BLOCK_N // BOX):
        begin = tile * BLOCK_N + box * BOX
        block = gl.load(table + gl.minimum(begin // BLOCK_SIZE, last_block))
        row = (block * KV_HEADS + kv_head) * BLOCK_SIZE + begin % BLOCK_SIZE
        for panel in gl.static_range(PADDED // 64):
            part = target.slice(box * BOX, BOX, 0).slice(panel * 64, 64, 1)
            tma.async_copy_global_to_shared(source, [row, panel * 64], full, part)


@gluon.jit
def _produce(
    keys, values, slots, starts, counts, tiles, tables, work, table_stride, window, key_tiles, value_tiles,
    full_keys, full_values, free_keys, free_values, KV_HEADS: gl.constexpr, PADDED: gl.constexpr,
    BLOCK_SIZE: gl.constexpr, BLOCK_N: gl.constexpr, QUERIES: gl.constexpr, PIECES: gl.constexpr,
    TILE: gl.constexpr, STAGES: gl.constexpr, WINDOWED: gl.constexpr,
):  # fmt: skip
    done = 0  # tiles of keys so far: the stage is their remainder, the phase the parity of their rounds
    turns = (work + gl.num_programs(0) - 1) // gl.num_programs(0)
    for turn in range(turns):
        own = _place(turn, work)
        if own < work:
            sequence, kv_head, _first, _stop, _start, length, low, _inner, _clear, high = _bounds(
                own, starts, counts, tiles, window, KV_HEADS, BLOCK_N, QUERIES, PIECES, TILE, WINDOWED
            )
            table = tables + gl.load(slots + sequence).to(gl.int64) * table_stride
            last_block = (length - 1) // BLOCK_SIZE
            for back in range(high - low):
                tile = high - 1 - back
                stage = done % STAGES
                free = (done // STAGES) % 2 ^ 1
                mbarrier.wait(free_keys.index(stage), free)
                _copy(keys, table, last_block, tile, kv_head, full_keys.index(stage), key_tiles.index(stage),
                      KV_HEADS, PADDED, BLOCK_SIZE, BLOCK_N)  # fmt: skip
                mbarrier.wait(free_values.index(stage), free)
                _copy(values, table, last_block, tile, kv_head, full_values.index(stage),
                      value_tiles.index(stage), KV_HEADS, PADDED, BLOCK_SIZE, BLOCK_N)  # fmt: skip
                done += 1


@gluon.jit
def _weigh(
    scores, top, weight, positions, tile, unit, softcap, window, BLOCK_N: gl.constexpr, CAPPED: gl.constexpr,
    WINDOWED: gl.constexpr, MASKED: gl.constexpr, SCORES: gl.constexpr,
):  # fmt: skip
    """Weights of a tile's scores relative to the largest score so far, which is `above`, in units of log2."""
    if CAPPED:
        # tanh x = 1 - 2 / (1 + e^2x); `unit` comes divided by the cap, times 2 log2 e.
        scores = softcap * (1.0 - 2.0 / (1.0 + gl.exp2(scores * unit)))
        unit = LOG2E
    if MASKED:
        at = tile * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, SCORES))
        seen = at[None, :] <= positions[:, None]
        if WINDOWED:
            seen = seen & (at[None, :] > positions[:, None] - window)
        scores = gl.where(seen, scores, HIDDEN)
    above = gl.maximum(top, gl.max(scores, 1) * unit)
    weights = gl.exp2(scores * unit - above[:, None])
    shrink = gl.exp2(top - above)
    weight = weight * shrink + gl.sum(weights, 1)
    return weights, above, weight, shrink


@gluon.jit
def _step(
    total, weights, top, weight, done, tile, positions, unit, softcap, window, queries, key_tiles,
    value_tiles, full_keys, full_values, free_keys, free_values, BLOCK_N: gl.constexpr, PADDED: gl.constexpr,
    STAGES: gl.constexpr, CAPPED: gl.constexpr, WINDOWED: gl.constexpr, MASKED: gl.constexpr,
    SCORES: gl.constexpr, TOTAL: gl.constexpr, HELD: gl.constexpr,
):  # fmt: skip
    """Scores of `tile`, which is the done-th, while the weights of the tile before it meet their values."""
    stage = done % STAGES
    before = (done - 1) % STAGES
    mbarrier.wait(full_keys.index(stage), (done // STAGES) % 2)
    nothing = gl.zeros([64, BLOCK_N], gl.float32, SCORES)
    scores = hopper.warpgroup_mma(
        queries, key_tiles.index(stage).permute((1, 0)), nothing, use_acc=False, is_async=True
    )
    mbarrier.wait(full_values.index(before), ((done - 1) // STAGES) % 2)
    total = hopper.warpgroup_mma(weights, value_tiles.index(before), total, is_async=True)
    scores = hopper.warpgroup_mma_wait(1, deps=[scores])
    mbarrier.arrive(free_keys.index(stage))
    new, top, weight, shrink = _weigh(
        scores, top, weight, positions, tile, unit, softcap, window, BLOCK_N, CAPPED, WINDOWED, MASKED, SCORES
    )
    if HELD:
        # The assembler would move the exponentials behind the wait, where nothing runs beside them. A store
        # that never happens, since no sum of weights is negative, keeps them before it.
        weight = gl.inline_asm_elementwise(
            "{ .reg .pred p; .reg .b32 a; mov.u32 a, 0; setp.lt.f32 p, $1, 0f00000000; mov.b32 $0, $1;"
            " @p st.volatile.shared.f32 [a], $1; }",
            "=f,f", [weight], dtype=gl.float32, is_pure=False, pack=1,
        )  # fmt: skip
    total, weights = hopper.warpgroup_mma_wait(0, deps=[total, weights])
    mbarrier.arrive(free_values.index(before))
    total = total * gl.convert_layout(shrink, gl.SliceLayout(1, TOTAL))[:, None]
    weights = gl.convert_layout(new.to(weights.dtype), gl.DotOperandLayout(0, TOTAL, 2))
    return total, weights, top, weight


@gluon.jit
def _fetch(
    turn, query, starts, counts, rows, tiles, work, query_stride, head_stride, window, target,
    HALF: gl.constexpr, KV_HEADS: gl.constexpr, GROUP: gl.constexpr, DIM: gl.constexpr, PADDED: gl.constexpr,
    BLOCK_N: gl.constexpr, QUERIES: gl.constexpr, PIECES: gl.constexpr, TILE: gl.constexpr,
    WIDE: gl.constexpr,
):  # fmt: skip
    """Have the queries of a turn copied; nothing where there is none."""
    own = _place(turn, work)
    sequence, kv_head, first, stop, _start, _length, _low, _inner, _clear, _high = _bounds(
        gl.minimum(own, work - 1),
        starts,
        counts,
        tiles,
        window,
        KV_HEADS,
        BLOCK_N,
        QUERIES,
        PIECES,
        TILE,
        False,
    )
    stop = gl.where(own < work, stop, 0)
    row = HALF * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, WIDE))
    dims = gl.arange(0, PADDED, layout=gl.SliceLayout(0, WIDE))
    index = first + row // GROUP
    head = kv_head * GROUP + row % GROUP
    mask = ((row < QUERIES * GROUP) & (index < stop))[:, None] & (dims < DIM)[None, :]
    at = (gl.load(rows + sequence) + index).to(gl.int64)
    places = at[:, None] * query_stride + (head * head_stride)[:, None] + dims[None, :]
    hopper.async_copy.async_copy_global_to_shared(target, query + places, mask=mask)
    hopper.async_copy.commit_group()


@gluon.jit
def _consume(
    query, out, starts, counts, rows, tiles, work, query_stride, head_stride, out_stride, scale, softcap,
    window, all_queries, key_tiles, value_tiles, full_keys, full_values, free_keys, free_values,
    HALF: gl.constexpr, KV_HEADS: gl.constexpr, GROUP: gl.constexpr, DIM: gl.constexpr, PADDED: gl.constexpr,
    BLOCK_N: gl.constexpr, QUERIES: gl.constexpr, PIECES: gl.constexpr, TILE: gl.constexpr,
    STAGES: gl.constexpr, CAPPED: gl.constexpr, WINDOWED: gl.constexpr, HELD: gl.constexpr,
    AHEAD: gl.constexpr,
):  # fmt: skip
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    TOTAL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PADDED, 16])
    WIDE: gl.constexpr = gl.BlockedLayout([1, 8], [256 // PADDED, PADDED // 8], [4, 1], [1, 0])
    if CAPPED:
        unit = scale / softcap * (2 * LOG2E)
    else:
        unit = scale * LOG2E
    dtype: gl.constexpr = query.dtype.element_ty
    done = 0
    turns = (work + gl.num_programs(0) - 1) // gl.num_programs(0)
    if AHEAD:
        _fetch(0, query, starts, counts, rows, tiles, work, query_stride, head_stride, window,
               all_queries.index(0), HALF, KV_HEADS, GROUP, DIM, PADDED, BLOCK_N, QUERIES, PIECES, TILE,
               WIDE)  # fmt: skip
    for turn in range(turns):
        own = _place(turn, work)
        if AHEAD:
            queries = all_queries.index(turn % 2)
        else:
            queries = all_queries.index(0)
            _fetch(turn, query, starts, counts, rows, tiles, work, query_stride, head_stride, window, queries,
                   HALF, KV_HEADS, GROUP, DIM, PADDED, BLOCK_N, QUERIES, PIECES, TILE, WIDE)  # fmt: skip
        hopper.async_copy.wait_group(0)
        hopper.fence_async_shared()
        gl.thread_barrier()
        if AHEAD:
            _fetch(turn + 1, query, starts, counts, rows, tiles, work, query_stride, head_stride, window,
                   all_queries.index((turn + 1) % 2), HALF, KV_HEADS, GROUP, DIM, PADDED, BLOCK_N, QUERIES,
                   PIECES, TILE, WIDE)  # fmt: skip
        if own < work:
            sequence, kv_head, first, stop, start, length, low, inner, clear, high = _bounds(
                own, starts, counts, tiles, window, KV_HEADS, BLOCK_N, QUERIES, PIECES, TILE, WINDOWED
            )
            if high > low:
                positions = (
                    start + first + (HALF * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, SCORES))) // GROUP
                )
                stage = done % STAGES
                phase = (done // STAGES) % 2
                mbarrier.wait(full_keys.index(stage), phase)
                scores = hopper.warpgroup_mma(
                    queries, key_tiles.index(stage).permute((1, 0)),
                    gl.zeros([64, BLOCK_N], gl.float32, SCORES), use_acc=False, is_async=True,
                )  # fmt: skip
                scores = hopper.warpgroup_mma_wait(0, deps=[scores])
                mbarrier.arrive(free_keys.index(stage))
                top = gl.full([64], HIDDEN, gl.float32, gl.SliceLayout(1, SCORES))
                weight = gl.zeros([64], gl.float32, gl.SliceLayout(1, SCORES))
                new, top, weight, _shrink = _weigh(
                    scores, top, weight, positions, high - 1, unit, softcap, window, BLOCK_N, CAPPED,
                    WINDOWED, True, SCORES,
                )  # fmt: skip
                weights = gl.convert_layout(new.to(dtype), gl.DotOperandLayout(0, TOTAL, 2))
                total = gl.zeros([64, PADDED], gl.float32, TOTAL)
                if high * BLOCK_N > length:
                    # A weight of zero does not undo what is not a number. Both warpgroups write the same.
                    mbarrier.wait(full_values.index(stage), phase)
                    held = value_tiles.index(stage)
                    behind = (high - 1) * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(1, WIDE))
                    value = held.load(WIDE)
                    held.store(gl.where((behind < length)[:, None], value, gl.zeros_like(value)))
                    hopper.fence_async_shared()
                    gl.thread_barrier()
                done += 1
                edge = gl.minimum(clear, high - 1)
                for back in range(high - 1 - edge):
                    total, weights, top, weight = _step(
                        total, weights, top, weight, done, high - 2 - back, positions, unit, softcap, window,
                        queries, key_tiles, value_tiles, full_keys, full_values, free_keys, free_values,
                        BLOCK_N, PADDED, STAGES, CAPPED, WINDOWED, True, SCORES, TOTAL, HELD,
                    )  # fmt: skip
                    done += 1
                inner = gl.minimum(inner, edge)
                for back in range(edge - inner):
                    total, weights, top, weight = _step(
                        total, weights, top, weight, done, edge - 1 - back, positions, unit, softcap, window,
                        queries, key_tiles, value_tiles, full_keys, full_values, free_keys, free_values,
                        BLOCK_N, PADDED, STAGES, CAPPED, WINDOWED, False, SCORES, TOTAL, HELD,
                    )  # fmt: skip
                    done += 1
                if WINDOWED:
                    for back in range(inner - low):
                        total, weights, top, weight = _step(
                            total, weights, top, weight, done, inner - 1 - back, positions, unit, softcap,
                            window, queries, key_tiles, value_tiles, full_keys, full_values, free_keys,
                            free_values, BLOCK_N, PADDED, STAGES, CAPPED, WINDOWED, True, SCORES, TOTAL, HELD,
                        )  # fmt: skip
                        done += 1
                before = (done - 1) % STAGES
                mbarrier.wait(full_values.index(before), ((done - 1) // STAGES) % 2)
                total = hopper.warpgroup_mma(weights, value_tiles.index(before), total, is_async=True)
                total = hopper.warpgroup_mma_wait(0, deps=[total])
                mbarrier.arrive(free_values.index(before))

                result = total / gl.convert_layout(weight, gl.SliceLayout(1, TOTAL))[:, None]
                queries.store(result.to(dtype))
                gl.thread_barrier()
                row = HALF * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, WIDE))
                dims = gl.arange(0, PADDED, layout=gl.SliceLayout(0, WIDE))
                index = first + row // GROUP
                head = kv_head * GROUP + row % GROUP
                mask = ((row < QUERIES * GROUP) & (index < stop))[:, None] & (dims < DIM)[None, :]
                at = (gl.load(rows + sequence) + index).to(gl.int64)
                places = at[:, None] * out_stride + (head * DIM)[:, None] + dims[None, :]
                gl.store(out + places, queries.load(WIDE), mask=mask)
                gl.thread_barrier()


@gluon.jit(do_not_specialize=["work"])  # it changes from step to step: compiled once for all
def _attend(
    query, keys, values, out, slots, starts, counts, rows, tiles, tables, work, query_stride, head_stride,
    out_stride, table_stride, scale, softcap, window, KV_HEADS: gl.constexpr, GROUP: gl.constexpr,
    DIM: gl.constexpr, PADDED: gl.constexpr, BLOCK_SIZE: gl.constexpr, BLOCK_N: gl.constexpr,
    QUERIES: gl.constexpr, PIECES: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr,
    CAPPED: gl.constexpr, WINDOWED: gl.constexpr, HELD: gl.constexpr,
    AHEAD: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = keys.dtype
    LAYOUT: gl.constexpr = keys.layout
    first_queries = gl.allocate_shared_memory(dtype, [2 if AHEAD else 1, 64, PADDED], LAYOUT)
    second_queries = gl.allocate_shared_memory(dtype, [2 if AHEAD else 1, 64, PADDED], LAYOUT)
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
            (_consume, (
                query, out, starts, counts, rows, tiles, work, query_stride, head_stride, out_stride, scale,
                softcap, window, first_queries, key_tiles, value_tiles, full_keys, full_values, free_keys,
                free_values, 0, KV_HEADS, GROUP, DIM, PADDED, BLOCK_N, QUERIES, PIECES, TILE, STAGES, CAPPED,
                WINDOWED, HELD, AHEAD,
            )),
            (_consume, (
                query, out, starts, counts, rows, tiles, work, query_stride, head_stride, out_stride, scale,
                softcap, window, second_queries, key_tiles, value_tiles, full_keys, full_values, free_keys,
                free_values, 1, KV_HEADS, GROUP, DIM, PADDED, BLOCK_N, QUERIES, PIECES, TILE, STAGES, CAPPED,
                WINDOWED, HELD, AHEAD,
            )),
            (_produce, (
                keys, values, slots, starts, counts, tiles, tables, work, table_stride, window, key_tiles,
                value_tiles, full_keys, full_values, free_keys, free_values, KV_HEADS, PADDED, BLOCK_SIZE,
                BLOCK_N, QUERIES, PIECES, TILE, STAGES, WINDOWED,
            )),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
