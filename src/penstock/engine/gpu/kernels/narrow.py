"""Matmuls for some dozens of rows on Hopper, which keep the memory busy reading the weight.

One warp has tiles of the weight and of the activations copied into a ring in shared memory, one warpgroup or
two multiply, the weight on the left. The ring is deep, and it is filled with weights before the kernel ahead
has ended (no kernel of a step may write weights).

All programs have the same number of steps, so tiles are cut (see `narrow_shapes`). Pieces of a tile are
summed in their order along K, by whichever program was last: equal inputs give equal bits.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from penstock.engine.gpu.kernels import norm as norms
from penstock.engine.gpu.kernels.launch import overlapped
from penstock.engine.gpu.kernels.narrow_shapes import MOST_ROWS, MOST_TILES, PANEL, NarrowShape, choose
from penstock.engine.kernels.activation import Activation

# Of a thread, by warps that multiply, with four more beside them; two programs of the former fit a processor.
_REGISTERS = {4: 128, 8: 168}


@dataclass(frozen=True, slots=True)
class Unrooted:
    """Normed rows that are yet to be divided by their root mean square."""

    values: Tensor  # [rows, size], multiplied by the norm's weight
    squares: Tensor  # float32 [parts, rows]: sums of squares from before that
    eps: float


def fits(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernel takes these: sixteen bits, or eight on both sides."""
    return (
        x.dtype == weight.dtype
        and x.dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn)
        and x.shape[0] <= MOST_ROWS
        and x.shape[1] * x.itemsize % 16 == 0
        and x.shape[1] * x.itemsize > PANEL
        and x.is_cuda
        and torch.cuda.get_device_capability(x.device)[0] == 9
    )


@gluon.jit
def _wait_for_kernel_before():
    gl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _let_next_kernel_begin():
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def _begin(program, total):
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
def _copy_weights(
    weight, step, full, target, N, STEPS: gl.constexpr, TILE: gl.constexpr, GATED: gl.constexpr
):
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
    begin = _begin(gl.program_id(0), total)
    steps = _begin(gl.program_id(0) + 1, total) - begin
    first = gl.minimum(steps, STAGES)
    for i in range(first):
        mbarrier.expect(full.index(i), BYTES)
        _copy_weights(weight, begin + i, full.index(i), weights.index(i), N, STEPS, TILE, GATED)
    if PDL:
        if AHEAD > 0:
            _prefetch(weight_at, begin + first, begin + steps, N, size, STEPS, TILE, WIDTH, AHEAD, GATED)
        _wait_for_kernel_before()
    for i in range(first):
        column = (begin + i) % STEPS * WIDTH
        tma.async_copy_global_to_shared(x, [0, column], full.index(i), inputs.index(i))
    for i in range(first, steps):
        stage = i % STAGES
        mbarrier.wait(free.index(stage), (i // STAGES) % 2 ^ 1)
        mbarrier.expect(full.index(stage), BYTES)
        _copy_weights(weight, begin + i, full.index(stage), weights.index(stage), N, STEPS, TILE, GATED)
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
def _compute(
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
    begin = _begin(own, total)
    end = _begin(own + 1, total)
    column = gl.arange(0, ROWS, layout=gl.SliceLayout(0, SUMS))
    inner = gl.arange(0, PART, layout=gl.SliceLayout(1, SUMS))
    piece = inner[:, None] * ROWS + column[None, :]
    if PDL:
        _wait_for_kernel_before()
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
def _narrow_kernel(
    weight, weight_at, x, scales, row_scales, squares, bias, out, norm, normed, normed_squares, room,
    arrivals, N, M, out_stride, size, parts, eps, multiplier, STEPS: gl.constexpr, ROWS: gl.constexpr,
    TILE: gl.constexpr, STAGES: gl.constexpr, AHEAD: gl.constexpr, WARPS: gl.constexpr,
    SCALED: gl.constexpr, PARTS: gl.constexpr, BIASED: gl.constexpr, ADD: gl.constexpr,
    NORMED: gl.constexpr, GATED: gl.constexpr, ACTIVATION: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    if PDL:
        _let_next_kernel_begin()
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
            (_compute, (
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


def norm_linear(
    hidden: Tensor,
    norm_weight: Tensor,
    eps: float,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    out: Tensor,
) -> None:
    """out = rms_norm(hidden) W^T + bias."""
    _launch(_normed(hidden, norm_weight, eps), weight, out, bias=bias)


def gated_linear(
    hidden: Tensor | Unrooted,
    norm_weight: Tensor | None,
    eps: float,
    weight: Tensor,
    *,
    scales: Tensor | None = None,
    row_scales: Tensor | None = None,
    bias: Tensor | None = None,
    activation: Activation,
    out: Tensor,
) -> None:
    """out = activation(gate) * up of rms_norm(hidden) W^T + bias; the gate's rows of the weight come first.

    Without a norm weight the rows are taken as they are.
    """
    if norm_weight is not None:
        assert isinstance(hidden, Tensor)
        hidden = _normed(hidden, norm_weight, eps)
    _launch(hidden, weight, out, scales=scales, row_scales=row_scales, bias=bias, activation=activation)


def linear_add(
    x: Tensor,
    weight: Tensor,
    hidden: Tensor,
    *,
    scales: Tensor | None = None,
    row_scales: Tensor | None = None,
    bias: Tensor | None = None,
    multiplier: float = 1.0,
) -> None:
    """hidden += multiplier * (x W^T + bias), rounded once."""
    _launch(
        x, weight, hidden, scales=scales, row_scales=row_scales, bias=bias, multiplier=multiplier, add=True
    )


def linear_add_norm(
    x: Tensor,
    weight: Tensor,
    hidden: Tensor,
    norm_weight: Tensor,
    eps: float,
    *,
    scales: Tensor | None = None,
    row_scales: Tensor | None = None,
    bias: Tensor | None = None,
    multiplier: float = 1.0,
) -> Unrooted:
    """The same, and the norm of the sum for the matmul that follows."""
    made = _launch(
        x, weight, hidden,
        scales=scales, row_scales=row_scales, bias=bias, multiplier=multiplier, add=True,
        norm_weight=norm_weight, eps=eps,
    )  # fmt: skip
    assert made is not None
    return made


def linear(
    x: Tensor | Unrooted,
    weight: Tensor,
    *,
    scales: Tensor | None = None,
    row_scales: Tensor | None = None,
    bias: Tensor | None = None,
    out: Tensor,
) -> None:
    """out = x W^T + bias. In eight bits rows have scales, as the rows of the weight do."""
    _launch(x, weight, out, scales=scales, row_scales=row_scales, bias=bias)


def _normed(hidden: Tensor, weight: Tensor, eps: float) -> Tensor:
    made = torch.empty_like(hidden)
    norms.add_norm(hidden, None, weight, eps, out=made)
    return made


@functools.cache
def _room(device: torch.device, size: int) -> tuple[Tensor, Tensor]:
    """For pieces of tiles, and how many of each tile's are there: zero between two launches. Kernels that run
    one after the other share it; it is never given back, since captured graphs know its address."""
    arrivals = torch.zeros(MOST_TILES, dtype=torch.int32, device=device)
    return torch.empty(size, dtype=torch.float32, device=device), arrivals


def _launch(
    x: Tensor | Unrooted,
    weight: Tensor,
    out: Tensor,
    *,
    scales: Tensor | None = None,
    row_scales: Tensor | None = None,
    bias: Tensor | None = None,
    activation: Activation | None = None,
    add: bool = False,
    multiplier: float = 1.0,
    norm_weight: Tensor | None = None,
    eps: float = 0.0,
    shape: NarrowShape | None = None,
) -> Unrooted | None:
    squares = None
    if isinstance(x, Unrooted):
        x, squares, eps = x.values, x.squares, x.eps
    rows, size = x.shape
    count = weight.shape[0]
    if shape is None:
        processors = torch.cuda.get_device_properties(x.device).multi_processor_count
        gated = activation is not None
        shape = choose(count, size, weight.dtype, rows=rows, gated=gated, processors=processors)
    made = None
    if norm_weight is not None:
        parts = torch.empty((shape.tiles(count), rows), dtype=torch.float32, device=x.device)
        made = Unrooted(out.new_empty((rows, count)), parts, eps)
    pieces, arrivals = _room(x.device, triton.next_power_of_2(2 * shape.programs * shape.tile * shape.rows))
    layout = gl.NVMMASharedLayout(PANEL, 8 * weight.itemsize)
    width = shape.panels * PANEL // weight.itemsize
    box = shape.tile if activation is None else shape.tile // 2
    _narrow_kernel[(shape.programs,)](
        TensorDescriptor.from_tensor(weight, [box, width], layout),
        weight,
        TensorDescriptor.from_tensor(x, [shape.rows, width], layout),
        scales,
        row_scales,
        squares,
        bias,
        out,
        norm_weight,
        None if made is None else made.values,
        None if made is None else made.squares,
        pieces,
        arrivals,
        count,
        rows,
        out.stride(0),
        size,
        0 if squares is None else squares.shape[0],
        eps,
        multiplier,
        STEPS=shape.steps(size, weight.dtype),
        ROWS=shape.rows,
        TILE=shape.tile,
        STAGES=shape.stages,
        AHEAD=shape.ahead,
        WARPS=shape.warps,
        SCALED=scales is not None,
        PARTS=0 if squares is None else triton.next_power_of_2(max(squares.shape[0], 64)),
        BIASED=bias is not None,
        ADD=add,
        NORMED=made is not None,
        GATED=activation is not None,
        ACTIVATION=activation,
        num_warps=shape.warps,
        maxnreg=_REGISTERS[shape.warps],
        **overlapped(),
    )
    return made
