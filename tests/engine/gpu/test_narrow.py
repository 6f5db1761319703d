"""Matmuls for some dozens of rows, which need a Hopper GPU; how they are cut is checked everywhere."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.engine.gpu import reference_linear as reference
from penstock.engine.gpu.kernels import narrow, narrow_layer
from penstock.engine.gpu.kernels.narrow_shapes import MOST_TILES, PANEL, choose
from penstock.engine.gpu.quantized import quantize_weight

EPS = 1e-5
# Weights [out, in]: of models, and sides that no tile divides.
WEIGHTS = [(6144, 4096), (4096, 14336), (1024, 3072), (576, 1536), (334, 200), (151936, 1024)]
needs_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
    reason="There is no Hopper GPU.",
)


@pytest.mark.parametrize("rows", [9, 32, 48, 128])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_every_program_has_a_step_and_its_ring_fits(
    weight: tuple[int, int], rows: int, dtype: torch.dtype
) -> None:
    count, size = weight
    shape = choose(count, size, dtype, rows=rows, processors=132)
    assert shape.rows >= rows
    assert shape.tiles(count) * shape.tile >= count
    assert shape.tiles(count) <= MOST_TILES
    step = PANEL * shape.panels  # bytes of a row
    assert shape.steps(size, dtype) * step >= size * dtype.itemsize
    assert shape.programs <= shape.tiles(count) * shape.steps(size, dtype)
    assert shape.stages * (shape.tile + shape.rows) * step <= 210 * 1024


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def error(got: Tensor, want: Tensor) -> float:
    return float((got.float() - want.float()).norm() / want.float().norm())


@needs_hopper
@pytest.mark.gpu
@pytest.mark.parametrize("rows", [9, 32, 100])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_products_are_those_of_float32_and_the_same_each_time(weight: tuple[int, int], rows: int) -> None:
    count, size = weight
    x, w, bias = normal(rows, size), normal(count, size) * size**-0.5, normal(count)
    assert narrow.fits(x, w)
    outs = [torch.full((rows, count), torch.nan, device="cuda", dtype=x.dtype) for _ in range(3)]
    for out in outs:
        narrow.linear(x, w, bias=bias, out=out)
    assert error(outs[0], reference.linear(x, w, bias=bias)) < 5e-3
    assert all(torch.equal(out, outs[0]) for out in outs)


@needs_hopper
@pytest.mark.gpu
@pytest.mark.parametrize("rows", [16, 33, 128])
def test_a_layer_in_fused_matmuls_is_the_layer(rows: int) -> None:
    size, inner = 1024, 3000
    hidden, x, norm = normal(rows, size), normal(rows, 2048), normal(size)
    o, gate_up, down = normal(size, 2048) / 45, normal(2 * inner, size) / 32, normal(size, inner) / 54
    after = reference.linear_add(x, o, hidden, multiplier=0.5)
    between = reference.gated_linear(after, norm, EPS, gate_up, "silu")
    want = F.rms_norm(reference.linear_add(between, down, after), (size,), norm.float(), EPS)
    unrooted = narrow.linear_add_norm(x, o, hidden, norm, EPS, multiplier=0.5)
    out = torch.full((rows, inner), torch.nan, device="cuda", dtype=torch.bfloat16)
    narrow.gated_linear(unrooted, None, EPS, gate_up, activation="silu", out=out)
    assert error(out, between) < 1e-2
    last = narrow.linear_add_norm(out, down, hidden, norm, EPS)
    eye = torch.eye(size, device="cuda", dtype=torch.bfloat16)
    got = torch.full_like(hidden, torch.nan)
    narrow.linear(last, eye, out=got)
    assert error(got, want) < 1e-2
    narrow.norm_linear(hidden, norm, EPS, eye, out=got)
    assert error(got, want) < 1e-2


@needs_hopper
@pytest.mark.gpu
def test_rows_and_weights_in_eight_bits_are_multiplied_by_their_scales() -> None:
    w, scales = quantize_weight(normal(4096, 1024) / 32)
    x, row_scales = quantize_weight(normal(40, 1024))
    out = torch.full((40, 2048), torch.nan, device="cuda", dtype=torch.bfloat16)
    narrow.gated_linear(
        x, None, EPS, w, scales=scales, row_scales=row_scales, activation="gelu_tanh", out=out
    )
    want = reference.gated_linear(x.float() * row_scales[:, None], None, EPS, w, "gelu_tanh", scales)
    assert error(out, want) < 5e-3


@needs_hopper
@pytest.mark.gpu
@pytest.mark.parametrize("rows", [9, 64])
def test_all_matmuls_of_a_layer_in_one_kernel_are_the_layer_each_time(rows: int) -> None:
    size, inner = 2048, 5632
    attended, start, norm, after_norm = normal(rows, 3072), normal(rows, size), normal(size), normal(size)
    o, gate_up, down, after = (
        normal(out, width) * width**-0.5
        for out, width in ((size, 3072), (2 * inner, size), (size, inner), (4000, size))
    )
    assert narrow_layer.fits([o, gate_up, down, after], narrow_layer.choose_layer(rows, 132))
    middle = reference.linear_add(attended, o, start)
    between = reference.gated_linear(middle, norm, EPS, gate_up, "silu")
    end = reference.linear_add(between, down, middle)
    outs = []
    for _ in range(5):
        hidden, out = start.clone(), torch.full((rows, 4000), torch.nan, device="cuda", dtype=start.dtype)
        narrow_layer.layer(
            attended, o, hidden, norm, gate_up, down, after_norm, after, EPS, activation="silu", out=out
        )
        outs.append((hidden, out))
    assert error(outs[0][0], end) < 1e-2
    assert error(outs[0][1], reference.norm_linear(end, after_norm, EPS, after)) < 1e-2
    assert all(torch.equal(hidden, outs[0][0]) and torch.equal(out, outs[0][1]) for hidden, out in outs)
