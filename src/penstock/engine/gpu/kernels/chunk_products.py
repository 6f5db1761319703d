"""Scores, weights and sums of prompt chunks: what each warpgroup makes of the tiles that it is given."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from penstock.engine.gpu.kernels.chunk_loads import STAGES, bounds, place
from penstock.engine.gpu.kernels.numbers import HIDDEN, LOG2E

# Renamed after Triton 3.6.
barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier


@gluon.constexpr_function
def ahead(padded):
    """Whether shared memory holds the queries of two turns, so that the next come while these are used."""
    return padded <= 128


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
    value_tiles, full_keys, full_values, free_keys, free_values, BLOCK_N: gl.constexpr, CAPPED: gl.constexpr,
    WINDOWED: gl.constexpr, MASKED: gl.constexpr, SCORES: gl.constexpr, TOTAL: gl.constexpr,
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
    own = place(turn, work)
    sequence, kv_head, first, stop, _start, _length, _low, _inner, _clear, _high = bounds(
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
def weigh_tiles(
    query, out, starts, counts, rows, tiles, work, query_stride, head_stride, out_stride, scale, softcap,
    window, all_queries, key_tiles, value_tiles, full_keys, full_values, free_keys, free_values,
    HALF: gl.constexpr, KV_HEADS: gl.constexpr, GROUP: gl.constexpr, DIM: gl.constexpr, PADDED: gl.constexpr,
    BLOCK_N: gl.constexpr, QUERIES: gl.constexpr, PIECES: gl.constexpr, TILE: gl.constexpr,
    CAPPED: gl.constexpr, WINDOWED: gl.constexpr,
):  # fmt: skip
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    TOTAL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PADDED, 16])
    WIDE: gl.constexpr = gl.BlockedLayout([1, 8], [256 // PADDED, PADDED // 8], [4, 1], [1, 0])
    if CAPPED:
        unit = scale / softcap * (2 * LOG2E)
    else:
        unit = scale * LOG2E
    dtype: gl.constexpr = query.dtype.element_ty
    AHEAD: gl.constexpr = ahead(PADDED)
    done = 0
    turns = (work + gl.num_programs(0) - 1) // gl.num_programs(0)
    if AHEAD:
        _fetch(0, query, starts, counts, rows, tiles, work, query_stride, head_stride, window,
               all_queries.index(0), HALF, KV_HEADS, GROUP, DIM, PADDED, BLOCK_N, QUERIES, PIECES, TILE,
               WIDE)  # fmt: skip
    for turn in range(turns):
        own = place(turn, work)
        if AHEAD:
            queries = all_queries.index(turn % 2)
        else:
            queries = all_queries.index(0)
            _fetch(turn, query, starts, counts, rows, tiles, work, query_stride, head_stride, window, queries,
                   HALF, KV_HEADS, GROUP, DIM, PADDED, BLOCK_N, QUERIES, PIECES, TILE, WIDE)  # fmt: skip
        hopper.async_copy.wait_group(0)
        hopper.fence_async_shared()
        barrier()
        if AHEAD:
            _fetch(turn + 1, query, starts, counts, rows, tiles, work, query_stride, head_stride, window,
                   all_queries.index((turn + 1) % 2), HALF, KV_HEADS, GROUP, DIM, PADDED, BLOCK_N, QUERIES,
                   PIECES, TILE, WIDE)  # fmt: skip
        if own < work:
            sequence, kv_head, first, stop, start, length, low, inner, clear, high = bounds(
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
                    barrier()
                done += 1
                edge = gl.minimum(clear, high - 1)
                for back in range(high - 1 - edge):
                    total, weights, top, weight = _step(
                        total, weights, top, weight, done, high - 2 - back, positions, unit, softcap, window,
                        queries, key_tiles, value_tiles, full_keys, full_values, free_keys, free_values,
                        BLOCK_N, CAPPED, WINDOWED, True, SCORES, TOTAL,
                    )  # fmt: skip
                    done += 1
                inner = gl.minimum(inner, edge)
                for back in range(edge - inner):
                    total, weights, top, weight = _step(
                        total, weights, top, weight, done, edge - 1 - back, positions, unit, softcap, window,
                        queries, key_tiles, value_tiles, full_keys, full_values, free_keys, free_values,
                        BLOCK_N, CAPPED, WINDOWED, False, SCORES, TOTAL,
                    )  # fmt: skip
                    done += 1
                if WINDOWED:
                    for back in range(inner - low):
                        total, weights, top, weight = _step(
                            total, weights, top, weight, done, inner - 1 - back, positions, unit, softcap,
                            window, queries, key_tiles, value_tiles, full_keys, full_values, free_keys,
                            free_values, BLOCK_N, CAPPED, WINDOWED, True, SCORES, TOTAL,
                        )  # fmt: skip
                        done += 1
                before = (done - 1) % STAGES
                mbarrier.wait(full_values.index(before), ((done - 1) // STAGES) % 2)
                total = hopper.warpgroup_mma(weights, value_tiles.index(before), total, is_async=True)
                total = hopper.warpgroup_mma_wait(0, deps=[total])
                mbarrier.arrive(free_values.index(before))

                result = total / gl.convert_layout(weight, gl.SliceLayout(1, TOTAL))[:, None]
                queries.store(result.to(dtype))
                barrier()
                row = HALF * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, WIDE))
                dims = gl.arange(0, PADDED, layout=gl.SliceLayout(0, WIDE))
                index = first + row // GROUP
                head = kv_head * GROUP + row % GROUP
                mask = ((row < QUERIES * GROUP) & (index < stop))[:, None] & (dims < DIM)[None, :]
                at = (gl.load(rows + sequence) + index).to(gl.int64)
                places = at[:, None] * out_stride + (head * DIM)[:, None] + dims[None, :]
                gl.store(out + places, queries.load(WIDE), mask=mask)
                barrier()
