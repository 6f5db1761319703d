"""The kernel of `narrow`: what programs load, what they multiply, how pieces of a tile come together."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def wait_for_kernel_before():
    gl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def let_next_kernel_begin():
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def begin_of(program, total):
    """The first step of a program's stretch."""
    return program * total // gl.num_programs(0)


@gluon.jit
def _owner(step, total):
    """The program whose stretch has a step."""
    return ((step + 1) * gl.num_programs(0) - 1) // total


@gluon.jit
def _activate(x, ACTIVATION: gl.constexpr):
    if ACTIVATION == "silu":
        x = x / (1.0 + gl.exp(-x))
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + gl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        x = x / (1.0 + gl.exp(-1.5957691216057308 * x * (1.0 + 0.044715 * x * x)))
    else:
        gl.static_assert(ACTIVATION == "relu")
        x = gl.maximum(x, 0.0)
    return x


@gluon.jit
def copy_weights(weight, step, full, target, N, STEPS: gl.constexpr, TILE: gl.constexpr, GATED: gl.constexpr):
    """Rows of a tile; gated: half a tile of the gate's, then as many of up's, which begin at N // 2."""
    tile = step // STEPS
    column = step % STEPS * target.shape[1]
    if GATED:
        HALF: gl.constexpr = TILE // 2
        tma.async_copy_global_to_shared(weight, [tile * HALF, column], full, target.slice(0, HALF, 0))
        tma.async_copy_global_to_shared(
            weight, [N // 2 + tile * HALF, column], full, target.slice(HALF, HALF, 0)
        )
    else:
        tma.async_copy_global_to_shared(weight, [tile * TILE, column], full, target)


@gluon.jit
def _prefetch(
    weight_at, step, end, N, size, STEPS: gl.constexpr, TILE: gl.constexpr, WIDTH: gl.constexpr,
    AHEAD: gl.constexpr, GATED: gl.constexpr,
):  # fmt: skip
    """Bring weights of AHEAD steps, as far as they are of one tile, into the second-level cache."""
    tile = step // STEPS
    column = step % STEPS * WIDTH
    columns = gl.minimum(gl.minimum(AHEAD, end - step) * WIDTH, size - column)
    index = gl.arange(0, TILE, layout=gl.BlockedLayout([1], [32], [1], [0]))
    if GATED:
        HALF: gl.constexpr = TILE // 2
        row = tile * HALF + index % HALF + index // HALF * (N // 2)
    else:
        row = tile * TILE + index
    row = gl.minimum(row, N - 1)
    places = weight_at + row.to(gl.int64) * size + column
    nbytes = gl.zeros_like(index) + columns * (weight_at.dtype.element_ty.primitive_bitwidth // 8)
    if columns > 0:
        gl.inline_asm_elementwise(
            "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;", "=r,l,r", [places, nbytes],
            dtype=gl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@gluon.jit
def _load(
    weight, weight_at, x, weights, inputs, full, free, N, total, size, STEPS: gl.constexpr,
    TILE: gl.constexpr, STAGES: gl.constexpr, AHEAD: gl.constexpr, GATED: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    WIDTH: gl.constexpr = inputs.shape[2]
    SIZE: gl.constexpr = weights.dtype.primitive_bitwidth // 8
    BYTES: gl.constexpr = (weights.shape[1] + inputs.shape[1]) * WIDTH * SIZE
    begin = begin_of(gl.program_id(0), total)
    steps = begin_of(gl.program_id(0) + 1, total) - begin
    first = gl.minimum(steps, STAGES)
    for i in range(first):
        mbarrier.expect(full.index(i), BYTES)
        copy_weights(weight, begin + i, full.index(i), weights.index(i), N, STEPS, TILE, GATED)
    if PDL:
        if AHEAD > 0:
            _prefetch(weight_at, begin + first, begin + steps, N, size, STEPS, TILE, WIDTH, AHEAD, GATED)
        wait_for_kernel_before()
    for i in range(first):
        column = (begin + i) % STEPS * WIDTH
        tma.async_copy_global_to_shared(x, [0, column], full.index(i), inputs.index(i))
    for i in range(first, steps):
        stage = i % STAGES
        mbarrier.wait(free.index(stage), (i // STAGES) % 2 ^ 1)
        mbarrier.expect(full.index(stage), BYTES)
        copy_weights(weight, begin + i, full.index(stage), weights.index(stage), N, STEPS, TILE, GATED)
        column = (begin + i) % STEPS * WIDTH
        tma.async_copy_global_to_shared(x, [0, column], full.index(stage), inputs.index(stage))


@gluon.jit
def _multiply(sums, weights, inputs, NARROW: gl.constexpr):
    """Eight bits are summed with fewer bits than float32 has: only within a step."""
    if NARROW:
        return hopper.warpgroup_mma(weights, inputs, gl.zeros_like(sums), use_acc=False, is_async=True)
    else:
        return hopper.warpgroup_mma(weights, inputs, sums, is_async=True)


@gluon.jit
def _place(room, program, first, TILE: gl.constexpr, ROWS: gl.constexpr):
    """Where a program puts its piece of a tile that program `first` begins. It has two pieces at most: one at
    the end of a tile and one at the beginning of another."""
    slot = 2 * program + (program == first).to(gl.int32)
    return room + slot.to(gl.int64) * (TILE * ROWS)


@gluon.jit
def _scaled(
    y, index, factors, scales, bias, N, SCALED: gl.constexpr, ROWWISE: gl.constexpr, BIASED: gl.constexpr
):
    if SCALED:
        y = y * gl.load(scales + index, mask=index < N, other=0.0)[:, None]
    if ROWWISE:
        y = y * factors[None, :]
    if BIASED:
        y = y + gl.load(bias + index, mask=index < N, other=0.0).to(gl.float32)[:, None]
    return y


@gluon.jit
def _finish(
    y, up, tile, factors, scales, bias, out, norm, normed, normed_squares, N, M, out_stride, multiplier,
    SCALED: gl.constexpr, ROWWISE: gl.constexpr, BIASED: gl.constexpr, ADD: gl.constexpr,
    NORMED: gl.constexpr, GATED: gl.constexpr, ACTIVATION: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """From a tile's sums to the results."""
    PART: gl.constexpr = y.shape[0]
    ROWS: gl.constexpr = y.shape[1]
    OUT: gl.constexpr = gl.BlockedLayout([8, 1], [8, 4], [1, WARPS], [0, 1])
    index = tile * PART + gl.arange(0, PART, layout=gl.SliceLayout(1, y.type.layout))
    y = _scaled(y, index, factors, scales, bias, N, SCALED, ROWWISE, BIASED)
    limit = N
    if GATED:
        limit = N // 2
        up = _scaled(up, limit + index, factors, scales, bias, N, SCALED, ROWWISE, BIASED)
        y = _activate(y, ACTIVATION) * up
    if not ADD:
        y = y.to(out.dtype.element_ty)
    # Each thread gets neighbours along a row of the result.
    y = gl.convert_layout(y, OUT)
    index = tile * PART + gl.arange(0, PART, layout=gl.SliceLayout(1, OUT))
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(0, OUT))
    written = (index < limit)[:, None] & (row < M)[None, :]
    places = row[None, :] * out_stride + index[:, None]
    if ADD:
        y = gl.load(out + places, mask=written, other=0.0).to(gl.float32) + multiplier * y
        y = y.to(out.dtype.element_ty)
    gl.store(out + places, y, mask=written)
    if NORMED:
        # The norm is of what the next layer will read, rounded; what is not written is zero.
        y = y.to(gl.float32)
        gl.store(normed_squares + tile * M + row, gl.sum(y * y, 0), mask=row < M)
        y = y * gl.load(norm + index, mask=index < N, other=0.0).to(gl.float32)[:, None]
        gl.store(normed + row[None, :] * N + index[:, None], y.to(normed.dtype.element_ty), mask=written)


@gluon.jit
def _root_factors(squares, parts, M, size, eps, PARTS: gl.constexpr, ROWS: gl.constexpr, WARPS: gl.constexpr):
    """Of each row, one over its root mean square, from sums of squares [parts, M]; PARTS: at most so many."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1, 1], [2, 16], [WARPS, 1], [1, 0])
    part = gl.arange(0, PARTS, layout=gl.SliceLayout(1, LAYOUT))[:, None]
    row = gl.arange(0, ROWS, layout=gl.SliceLayout(0, LAYOUT))[None, :]
    found = gl.load(squares + part * M + row, mask=(part < parts) & (row < M), other=0.0)
    return gl.rsqrt(gl.sum(found, 0) / size + eps)


@gluon.jit
def compute(
    before, weights, inputs, full, free, scales, row_scales, squares, bias, out, norm, normed,
    normed_squares, room, arrivals, N, M, total, out_stride, size, parts, eps, multiplier,
    STEPS: gl.constexpr, ROWS: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr,
    SCALED: gl.constexpr, PARTS: gl.constexpr, BIASED: gl.constexpr, ADD: gl.constexpr,
    NORMED: gl.constexpr, GATED: gl.constexpr, ACTIVATION: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    NARROW: gl.constexpr = weights.dtype.primitive_bitwidth == 8
    PART: gl.constexpr = TILE // 2 if GATED else TILE
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [WARPS, 1], [16, ROWS, 32 if NARROW else 16])
    # Pieces of a tile that are loaded together, as far as registers last.
    BATCH: gl.constexpr = 4 if TILE * ROWS <= 4096 else (2 if TILE * ROWS == 8192 else 1)
    own = gl.program_id(0)
    begin = begin_of(own, total)
    end = begin_of(own + 1, total)
    column = gl.arange(0, ROWS, layout=gl.SliceLayout(0, SUMS))
    inner = gl.arange(0, PART, layout=gl.SliceLayout(1, SUMS))
    piece = inner[:, None] * ROWS + column[None, :]
    if PDL:
        wait_for_kernel_before()
    factors = gl.full([ROWS], 1.0, gl.float32, gl.SliceLayout(0, SUMS))
    if SCALED:
        factors = gl.load(row_scales + column, mask=column < M, other=0.0)
    if PARTS > 0:
        factors = _root_factors(squares, parts, M, size, eps, PARTS, ROWS, WARPS)
        factors = gl.convert_layout(factors, gl.SliceLayout(0, SUMS))

    step = begin
    while step < end:
        tile = step // STEPS
        stop = gl.minimum(end, (tile + 1) * STEPS)
        y = gl.zeros([PART, ROWS], gl.float32, SUMS)
        up = gl.zeros([PART, ROWS], gl.float32, SUMS)
        for at in range(step, stop):
            done = before + at - begin
            stage = done % STAGES
            mbarrier.wait(full.index(stage), (done // STAGES) % 2)
            x = inputs.index(stage).permute((1, 0))
            tile_weights = weights.index(stage)
            if GATED:
                fresh = _multiply(y, tile_weights.slice(0, PART, 0), x, NARROW)
                fresh_up = _multiply(up, tile_weights.slice(PART, PART, 0), x, NARROW)
                fresh, fresh_up = hopper.warpgroup_mma_wait(0, deps=[fresh, fresh_up])
                if NARROW:
                    y += fresh
                    up += fresh_up
                else:
                    y = fresh
                    up = fresh_up
            else:
                fresh = _multiply(y, tile_weights, x, NARROW)
                fresh = hopper.warpgroup_mma_wait(0, deps=[fresh])
                if NARROW:
                    y += fresh
                else:
                    y = fresh
            mbarrier.arrive(free.index(stage))
        step = stop

        first = _owner(tile * STEPS, total)
        last = _owner((tile + 1) * STEPS - 1, total)
        finished = first == last
        if first != last:
            place = _place(room, own, first, TILE, ROWS)
            gl.store(place + piece, y)
            if GATED:
                gl.store(place + PART * ROWS + piece, up)
            gl.thread_barrier()
            arrived = gl.atomic_add(arrivals + tile, 1, sem="acq_rel", scope="gpu")
            finished = arrived == last - first
            if finished:
                gl.store(arrivals + tile, 0)  # for the next launch
                y = gl.zeros([PART, ROWS], gl.float32, SUMS)
                up = gl.zeros([PART, ROWS], gl.float32, SUMS)
                for some in range(first, last + 1, BATCH):
                    for i in gl.static_range(BATCH):
                        place = _place(room, some + i, first, TILE, ROWS)
                        there = piece < gl.where(some + i <= last, PART * ROWS, 0)
                        y += gl.load(place + piece, mask=there, other=0.0, cache_modifier=".cg")
                        if GATED:
                            place += PART * ROWS
                            up += gl.load(place + piece, mask=there, other=0.0, cache_modifier=".cg")
        if finished:
            _finish(
                y, up, tile, factors, scales, bias, out, norm, normed, normed_squares, N, M, out_stride,
                multiplier, SCALED, SCALED or PARTS > 0, BIASED, ADD, NORMED, GATED, ACTIVATION, WARPS,
            )  # fmt: skip


@gluon.jit(do_not_specialize=["M", "parts"])
def narrow_kernel(
    weight, weight_at, x, scales, row_scales, squares, bias, out, norm, normed, normed_squares, room,
    arrivals, N, M, out_stride, size, parts, eps, multiplier, STEPS: gl.constexpr, ROWS: gl.constexpr,
    TILE: gl.constexpr, STAGES: gl.constexpr, AHEAD: gl.constexpr, WARPS: gl.constexpr,
    SCALED: gl.constexpr, PARTS: gl.constexpr, BIASED: gl.constexpr, ADD: gl.constexpr,
    NORMED: gl.constexpr, GATED: gl.constexpr, ACTIVATION: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    if PDL:
        let_next_kernel_begin()
    WIDTH: gl.constexpr = weight.block_shape[1]
    weights = gl.allocate_shared_memory(weight.dtype, [STAGES, TILE, WIDTH], weight.layout)
    inputs = gl.allocate_shared_memory(x.dtype, [STAGES, ROWS, WIDTH], x.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(free.index(stage), count=1)
    hopper.fence_async_shared()
    total = (N + TILE - 1) // TILE * STEPS
    gl.warp_specialize(
        [
            (compute, (
                0, weights, inputs, full, free, scales, row_scales, squares, bias, out, norm, normed,
                normed_squares, room, arrivals, N, M, total, out_stride, size, parts, eps, multiplier, STEPS,
                ROWS, TILE, STAGES, WARPS, SCALED, PARTS, BIASED, ADD, NORMED, GATED, ACTIVATION, PDL,
            )),
            (_load, (
                weight, weight_at, x, weights, inputs, full, free, N, total, size, STEPS, TILE, STAGES, AHEAD,
                GATED, PDL,
            )),
        ],
        [1],
        [40],
    )  # fmt: skip
