"""All matmuls between the attention of one layer and that of the next, in one kernel on Hopper.

The kernels of `narrow` stop reading weights at their ends: until the last sum is written nobody may read the
next activations. Here the weights of the next matmul are asked for in the meantime: they depend on nothing.
All programs are on the chip at once, and wait for each other between two matmuls.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from penstock.engine.gpu.kernels.launch import overlapped
from penstock.engine.gpu.kernels.narrow import room_for
from penstock.engine.gpu.kernels.narrow_kernel import (
    begin_of,
    compute,
    copy_weights,
    let_next_kernel_begin,
    wait_for_kernel_before,
)
from penstock.engine.gpu.kernels.narrow_shapes import PANEL, NarrowShape
from penstock.engine.kernels.activation import Activation

_MATMULS = 4


@gluon.jit
def _order_copies():
    """What was written before, or seen to be written, comes before copies that are asked for after."""
    gl.inline_asm_elementwise("fence.proxy.async; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _await(counter):
    """Until all programs have arrived."""
    seen = gl.atomic_add(counter, 0, sem="acquire", scope="gpu")
    while seen < gl.num_programs(0):
        seen = gl.atomic_add(counter, 0, sem="acquire", scope="gpu")


@gluon.jit
def _arrive(counter):
    _order_copies()
    gl.thread_barrier()
    return gl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")


@gluon.jit
def _load_weights(
    before, weight, weights, full, free, N, STEPS: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr,
    GATED: gl.constexpr,
):  # fmt: skip
    """Of one matmul; `before`: steps that the ring has seen. Returns how many it has seen then."""
    total = (N + TILE - 1) // TILE * STEPS
    begin = begin_of(gl.program_id(0), total)
    end = begin_of(gl.program_id(0) + 1, total)
    SIZE: gl.constexpr = weights.dtype.primitive_bitwidth // 8
    for step in range(begin, end):
        done = before + step - begin
        stage = done % STAGES
        mbarrier.wait(free.index(stage), (done // STAGES) % 2 ^ 1)
        mbarrier.expect(full.index(stage), TILE * weights.shape[2] * SIZE)
        copy_weights(weight, step, full.index(stage), weights.index(stage), N, STEPS, TILE, GATED)
    return before + end - begin


@gluon.jit
def _load_rows(
    before, x, inputs, full, free, N, STEPS: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr
):
    total = (N + TILE - 1) // TILE * STEPS
    begin = begin_of(gl.program_id(0), total)
    end = begin_of(gl.program_id(0) + 1, total)
    SIZE: gl.constexpr = inputs.dtype.primitive_bitwidth // 8
    for step in range(begin, end):
        done = before + step - begin
        stage = done % STAGES
        mbarrier.wait(free.index(stage), (done // STAGES) % 2 ^ 1)
        mbarrier.expect(full.index(stage), inputs.shape[1] * inputs.shape[2] * SIZE)
        column = step % STEPS * inputs.shape[2]
        tma.async_copy_global_to_shared(x, [0, column], full.index(stage), inputs.index(stage))
    return before + end - begin


@gluon.jit
def _all_weights(
    o, gate_up, down, after, weights, full, free, HIDDEN, GATE_UP, AFTER, O_STEPS: gl.constexpr,
    STEPS: gl.constexpr, DOWN_STEPS: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    done = _load_weights(0, o, weights, full, free, HIDDEN, O_STEPS, TILE, STAGES, False)
    done = _load_weights(done, gate_up, weights, full, free, GATE_UP, STEPS, TILE, STAGES, True)
    done = _load_weights(done, down, weights, full, free, HIDDEN, DOWN_STEPS, TILE, STAGES, False)
    _load_weights(done, after, weights, full, free, AFTER, STEPS, TILE, STAGES, False)


@gluon.jit
def _all_rows(
    attended, first, inner, second, inputs, full, free, counters, HIDDEN, GATE_UP, AFTER,
    O_STEPS: gl.constexpr, STEPS: gl.constexpr, DOWN_STEPS: gl.constexpr, TILE: gl.constexpr,
    STAGES: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    if PDL:
        wait_for_kernel_before()
    done = _load_rows(0, attended, inputs, full, free, HIDDEN, O_STEPS, TILE, STAGES)
    _await(counters)
    _order_copies()
    done = _load_rows(done, first, inputs, full, free, GATE_UP, STEPS, TILE, STAGES)
    _await(counters + 1)
    _order_copies()
    done = _load_rows(done, inner, inputs, full, free, HIDDEN, DOWN_STEPS, TILE, STAGES)
    _await(counters + 2)
    _order_copies()
    _load_rows(done, second, inputs, full, free, AFTER, STEPS, TILE, STAGES)


@gluon.jit
def _all_products(
    weights, inputs, full, free, hidden, norm, next_norm, first, first_squares, inner, second,
    second_squares, out, room, arrivals, counters, HIDDEN, GATE_UP, AFTER, M, hidden_stride, inner_stride,
    out_stride, parts, eps, multiplier, O_STEPS: gl.constexpr, STEPS: gl.constexpr, DOWN_STEPS: gl.constexpr,
    ROWS: gl.constexpr, TILE: gl.constexpr, STAGES: gl.constexpr, WARPS: gl.constexpr, PARTS: gl.constexpr,
    ACTIVATION: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    own = gl.program_id(0)
    tiles = (HIDDEN + TILE - 1) // TILE
    total = tiles * O_STEPS
    done = 0
    compute(
        done, weights, inputs, full, free, None, None, None, None, hidden, norm, first, first_squares, room,
        arrivals, HIDDEN, M, total, hidden_stride, HIDDEN, 0, eps, multiplier, O_STEPS, ROWS, TILE, STAGES,
        WARPS, False, 0, False, True, True, False, None, PDL,
    )  # fmt: skip
    _arrive(counters)
    done = begin_of(own + 1, total) - begin_of(own, total)
    _await(counters)
    total = (GATE_UP + TILE - 1) // TILE * STEPS
    compute(
        done, weights, inputs, full, free, None, None, first_squares, None, inner, None, None, None, room,
        arrivals, GATE_UP, M, total, inner_stride, HIDDEN, parts, eps, multiplier, STEPS, ROWS, TILE, STAGES,
        WARPS, False, PARTS, False, False, False, True, ACTIVATION, False,
    )  # fmt: skip
    _arrive(counters + 1)
    done += begin_of(own + 1, total) - begin_of(own, total)
    _await(counters + 1)
    total = tiles * DOWN_STEPS
    compute(
        done, weights, inputs, full, free, None, None, None, None, hidden, next_norm, second, second_squares,
        room, arrivals, HIDDEN, M, total, hidden_stride, HIDDEN, 0, eps, multiplier, DOWN_STEPS, ROWS, TILE,
        STAGES, WARPS, False, 0, False, True, True, False, None, False,
    )  # fmt: skip
    _arrive(counters + 2)
    done += begin_of(own + 1, total) - begin_of(own, total)
    _await(counters + 2)
    total = (AFTER + TILE - 1) // TILE * STEPS
    compute(
        done, weights, inputs, full, free, None, None, second_squares, None, out, None, None, None, room,
        arrivals, AFTER, M, total, out_stride, HIDDEN, parts, eps, multiplier, STEPS, ROWS, TILE, STAGES,
        WARPS, False, PARTS, False, False, False, False, None, False,
    )  # fmt: skip
    if _arrive(counters + 3) == gl.num_programs(0) - 1:
        # All have seen all of them: ready for the next launch.
        for i in gl.static_range(4):
            gl.store(counters + i, 0)


@gluon.jit(do_not_specialize=["M", "parts"])
def _layer_kernel(
    o, gate_up, down, after, attended, first, inner, second, hidden_at, norm, next_norm, first_at,
    first_squares, inner_at, second_at, second_squares, out, room, arrivals, counters, HIDDEN, GATE_UP, AFTER,
    M, hidden_stride, inner_stride, out_stride, parts, eps, multiplier, O_STEPS: gl.constexpr,
    STEPS: gl.constexpr, DOWN_STEPS: gl.constexpr, ROWS: gl.constexpr, TILE: gl.constexpr,
    STAGES: gl.constexpr, WARPS: gl.constexpr, PARTS: gl.constexpr, ACTIVATION: gl.constexpr,
    PDL: gl.constexpr,
):  # fmt: skip
    if PDL:
        let_next_kernel_begin()
    weights = gl.allocate_shared_memory(o.dtype, [STAGES, TILE, o.block_shape[1]], o.layout)
    inputs = gl.allocate_shared_memory(o.dtype, [STAGES, ROWS, o.block_shape[1]], o.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=2)
        mbarrier.init(free.index(stage), count=1)
    hopper.fence_async_shared()
    gl.warp_specialize(
        [
            (_all_products, (
                weights, inputs, full, free, hidden_at, norm, next_norm, first_at, first_squares, inner_at,
                second_at, second_squares, out, room, arrivals, counters, HIDDEN, GATE_UP, AFTER, M,
                hidden_stride, inner_stride, out_stride, parts, eps, multiplier, O_STEPS, STEPS, DOWN_STEPS,
                ROWS, TILE, STAGES, WARPS, PARTS, ACTIVATION, PDL,
            )),
            (_all_weights, (
                o, gate_up, down, after, weights, full, free, HIDDEN, GATE_UP, AFTER, O_STEPS, STEPS,
                DOWN_STEPS, TILE, STAGES,
            )),
            (_all_rows, (
                attended, first, inner, second, inputs, full, free, counters, HIDDEN, GATE_UP, AFTER, O_STEPS,
                STEPS, DOWN_STEPS, TILE, STAGES, PDL,
            )),
        ],
        [1, 1],
        [40, 40],
    )  # fmt: skip


@functools.cache
def _counters(device: torch.device) -> Tensor:
    """How many programs have finished each matmul: zero between two launches."""
    return torch.zeros(_MATMULS, dtype=torch.int32, device=device)


def choose_layer(rows: int, processors: int, *, panels: int = 1) -> NarrowShape:
    padded = max(16, 1 << (rows - 1).bit_length())
    stages = (208 * 1024) // ((128 + padded) * panels * PANEL)
    return NarrowShape(padded, 128, stages, processors, warps=4, panels=panels)


def fits(weights: list[Tensor], shape: NarrowShape) -> bool:
    """Whether every program has work in each matmul, as it must."""
    return all(
        shape.tiles(weight.shape[0]) * shape.steps(weight.shape[1], weight.dtype) >= shape.programs
        for weight in weights
    )


def layer(
    attended: Tensor,
    output: Tensor,
    hidden: Tensor,
    norm: Tensor,
    gate_up: Tensor,
    down: Tensor,
    next_norm: Tensor,
    after: Tensor,
    eps: float,
    *,
    activation: Activation,
    multiplier: float = 1.0,
    out: Tensor,
    shape: NarrowShape | None = None,
) -> None:
    """From what attention gives to what the next layer's attention takes, or to logits.

    hidden += multiplier * attended output^T; hidden += multiplier * mlp(rms_norm(hidden) * norm);
    out = (rms_norm(hidden) * next_norm) after^T.
    """
    rows, size = hidden.shape
    if shape is None:
        properties = torch.cuda.get_device_properties(hidden.device)
        shape = choose_layer(rows, properties.multi_processor_count)
    width = shape.panels * PANEL // output.itemsize
    layout = gl.NVMMASharedLayout(PANEL, 8 * output.itemsize)
    first, second = hidden.new_empty((2, rows, size)).unbind()
    inner = hidden.new_empty((rows, gate_up.shape[0] // 2))
    parts = shape.tiles(size)
    squares = torch.empty((2, parts, rows), dtype=torch.float32, device=hidden.device)
    room, arrivals = room_for(hidden.device, 2 * shape.programs * shape.tile * shape.rows)
    weights = [output, gate_up, down, after]
    boxes = [shape.tile, shape.tile // 2, shape.tile, shape.tile]
    _layer_kernel[(shape.programs,)](
        *(
            TensorDescriptor.from_tensor(w, [box, width], layout)
            for w, box in zip(weights, boxes, strict=True)
        ),
        *(
            TensorDescriptor.from_tensor(x, [shape.rows, width], layout)
            for x in (attended, first, inner, second)
        ),
        hidden,
        norm,
        next_norm,
        first,
        squares[0],
        inner,
        second,
        squares[1],
        out,
        room,
        arrivals,
        _counters(hidden.device),
        size,
        gate_up.shape[0],
        after.shape[0],
        rows,
        hidden.stride(0),
        inner.stride(0),
        out.stride(0),
        parts,
        eps,
        multiplier,
        O_STEPS=shape.steps(output.shape[1], output.dtype),
        STEPS=shape.steps(size, output.dtype),
        DOWN_STEPS=shape.steps(down.shape[1], output.dtype),
        ROWS=shape.rows,
        TILE=shape.tile,
        STAGES=shape.stages,
        WARPS=shape.warps,
        PARTS=64 if parts <= 64 else 128,
        ACTIVATION=activation,
        num_warps=shape.warps,
        maxnreg=168,
        **overlapped(),
    )
