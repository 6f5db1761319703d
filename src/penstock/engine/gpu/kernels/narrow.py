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
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from penstock.engine.gpu.kernels import norm as norms
from penstock.engine.gpu.kernels.launch import overlapped
from penstock.engine.gpu.kernels.narrow_kernel import narrow_kernel
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
def room_for(device: torch.device, size: int) -> tuple[Tensor, Tensor]:
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
    pieces, arrivals = room_for(
        x.device, triton.next_power_of_2(2 * shape.programs * shape.tile * shape.rows)
    )
    layout = gl.NVMMASharedLayout(PANEL, 8 * weight.itemsize)
    width = shape.panels * PANEL // weight.itemsize
    box = shape.tile if activation is None else shape.tile // 2
    narrow_kernel[(shape.programs,)](
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
