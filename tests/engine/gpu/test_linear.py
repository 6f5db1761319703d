"""Matmuls for few rows against plain torch, and the library's matmuls with weights in eight bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from penstock.engine.gpu import reference_linear as reference
from penstock.engine.gpu.kernels import skinny
from penstock.engine.gpu.linear import Fp8Linear, GpuLinear
from penstock.engine.gpu.quantized import FP8, dequantize_weight, quantize_weight
from penstock.engine.gpu.reference_rows import multiplied

EPS = 1e-5
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
ROWS = [1, 3, 16]
# [out, in]: odd sides, a single program, more than one tile along K (SmolLM2's 576 among them).
SIZES = [(6, 24), (37, 72), (20, 576)]
DTYPES = [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]


def random(*shape: int, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).to(device)


def poisoned(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full(shape, float("nan"), dtype=dtype, device=device)


def check(actual: Tensor, expected: Tensor) -> None:
    """As vectors: single elements may be sums that nearly cancel."""
    error = (actual.float() - expected.float()).norm() / expected.float().norm()
    assert error <= TOLERANCE[actual.dtype], f"a relative error of {error:.2e}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_rows_are_normed_on_the_way_into_a_matmul(
    rows: int, size: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> None:
    made: dict[str, Any] = {"dtype": dtype, "device": device}
    # Small rows, so that eps matters.
    hidden, weight, norm = (
        random(rows, size[1], **made) * 0.01,
        random(*size, **made),
        random(size[1], **made),
    )
    out = poisoned(rows, size[0], **made)
    bias = random(size[0], **made)
    skinny.norm_linear(hidden, norm, 1e-4, weight, bias=bias, out=out)
    check(out, reference.norm_linear(hidden, norm, 1e-4, weight, bias=bias))


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_rows_do_not_overflow_before_they_are_normed(dtype: torch.dtype, device: torch.device) -> None:
    made: dict[str, Any] = {"dtype": dtype, "device": device}
    rows = skinny.skinny_rows(dtype)
    hidden, weight = 9000.0 * random(rows, 72, **made), random(37, 72, **made)
    norm = torch.full((72,), 12.0, **made)
    out = poisoned(rows, 37, **made)
    skinny.norm_linear(hidden, norm, EPS, weight, out=out)
    check(out, reference.norm_linear(hidden, norm, EPS, weight))


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "relu"])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_gate_is_applied_to_what_goes_up(
    rows: int, activation: Any, dtype: torch.dtype, device: torch.device
) -> None:
    made: dict[str, Any] = {"dtype": dtype, "device": device}
    hidden, weight, norm = random(rows, 72, **made), random(2 * 19, 72, **made), random(72, **made)
    bias = random(2 * 19, **made)
    out = poisoned(rows, 19, **made)
    skinny.gated_linear(hidden, norm, EPS, weight, bias=bias, activation=activation, out=out)
    check(out, reference.gated_linear(hidden, norm, EPS, weight, activation, bias=bias))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_a_residual_is_added_in_place(
    rows: int, size: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> None:
    made: dict[str, Any] = {"dtype": dtype, "device": device}
    x, weight, hidden = random(rows, size[1], **made), random(*size, **made), random(rows, size[0], **made)
    expected = reference.linear_add(x, weight, hidden, multiplier=0.5)
    skinny.linear_add(x, weight, hidden, multiplier=0.5)
    check(hidden, expected)


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_of_a_wider_matrix_are_read_and_written_where_they_lie(rows: int, device: torch.device) -> None:
    made: dict[str, Any] = {"dtype": torch.float32, "device": device}
    x, weight, norm = random(rows, 64, **made)[:, :40], random(24, 40, **made), random(40, **made)
    wide = poisoned(rows, 32, **made)
    skinny.norm_linear(x, norm, EPS, weight, out=wide[:, :24])
    check(wide[:, :24], reference.norm_linear(x, norm, EPS, weight))
    assert wide[:, 24:].isnan().all()


@pytest.mark.gpu  # numpy, which interprets, adds in an order that depends on the shape
@pytest.mark.parametrize("rows", [2, 5, 16])
def test_a_row_does_not_depend_on_its_neighbours(rows: int, device: torch.device) -> None:
    made: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
    x, weight, norm = random(16, 96, **made), random(24, 96, **made), random(96, **made)
    alone, together = poisoned(rows, 24, **made), poisoned(16, 24, **made)
    skinny.norm_linear(x[:rows], norm, EPS, weight, out=alone)
    skinny.norm_linear(x, norm, EPS, weight, out=together)
    assert torch.equal(alone, together[:rows])


@pytest.mark.gpu
@pytest.mark.parametrize("rows", ROWS)
def test_weights_in_eight_bits_are_widened_and_scaled(rows: int, device: torch.device) -> None:
    made: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
    for count, size in ((64, 576), (38, 80)):
        x, norm, hidden = random(rows, size, **made) * 1e5, random(size, **made), random(rows, count, **made)
        weight, scales = quantize_weight(random(count, size, **made))
        out, gated = poisoned(rows, count, **made), poisoned(rows, count // 2, **made)
        torch.cuda.synchronize()
        skinny.norm_linear(x, norm, EPS, weight, scales=scales, out=out)
        check(out, reference.norm_linear(x, norm, EPS, weight, scales))
        skinny.gated_linear(x, norm, EPS, weight, scales=scales, activation="silu", out=gated)
        check(gated, reference.gated_linear(x, norm, EPS, weight, "silu", scales))
        expected = reference.linear_add(x, weight, hidden, scales)
        skinny.linear_add(x, weight, hidden, scales=scales)
        check(hidden, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_quantized_weight_is_near_the_weight(dtype: torch.dtype, device: torch.device) -> None:
    weight = random(10, 48, dtype=dtype, device=device) * torch.logspace(-6, 6, 10, device=device)[:, None]
    weight = weight.to(dtype)
    weight[3] = 0
    quantized, scales = quantize_weight(weight)
    assert quantized.dtype == FP8
    assert scales.dtype == torch.float32
    near = dequantize_weight(quantized, scales, torch.float32)
    # Three bits behind the point: half a step is 1/16 of a number; small ones have the steps of the smallest.
    allowed = torch.maximum(weight.float().abs() / 16, scales[:, None] * 2**-10)
    assert ((near - weight.float()).abs() <= allowed * 1.001).all()
    assert (near[3] == 0).all()


def test_a_weight_is_quantized_in_pieces_as_in_one(
    monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    weight = random(10, 48, dtype=torch.float32, device=device)
    whole = quantize_weight(weight)
    monkeypatch.setattr("penstock.engine.gpu.quantized._PIECE", 3 * 48)
    quantized, scales = quantize_weight(weight)
    assert torch.equal(quantized.float(), whole[0].float())
    assert torch.equal(scales, whole[1])
    wide = dequantize_weight(quantized, scales, torch.float32)
    assert torch.equal(wide, quantized.float() * scales[:, None])


@pytest.mark.parametrize("biased", [False, True])
def test_the_library_computes_the_product(biased: bool, device: torch.device) -> None:
    made: dict[str, Any] = {"dtype": torch.float32, "device": device}
    x, weight = random(5, 24, **made), random(7, 24, **made)
    bias = random(7, **made) if biased else None
    layer = GpuLinear(weight, bias)
    check(layer(x), reference.linear(x, weight, bias=bias))
    assert layer.count == 7 * 24
    assert layer.nbytes == 4 * 7 * 24 + (4 * 7 if biased else 0)


@pytest.mark.parametrize(
    "size",
    [pytest.param((64, 48), id="even"), pytest.param((33, 20), id="odd")],
)
@pytest.mark.parametrize("biased", [False, True])
def test_rows_and_weights_in_eight_bits_give_the_product_of_what_they_stand_for(
    size: tuple[int, int], biased: bool, device: torch.device
) -> None:
    made: dict[str, Any] = {"dtype": torch.float32, "device": device}
    x, x_scales = quantize_weight(random(5, size[1], **made))
    weight, scales = quantize_weight(random(*size, **made))
    bias = random(size[0], dtype=torch.bfloat16, device=device) if biased else None
    layer = Fp8Linear(weight, scales, bias)
    expected = reference.linear(x.float() * x_scales[:, None], weight, scales, bias)
    check(layer(x, x_scales), expected)


def test_scales_may_be_left_to_the_reader_of_a_product(device: torch.device) -> None:
    made: dict[str, Any] = {"dtype": torch.float32, "device": device}
    x, x_scales = quantize_weight(random(5, 48, **made))
    layer = Fp8Linear(*quantize_weight(random(64, 48, **made)))
    assert layer.best_unscaled(5)
    check(multiplied(layer.unscaled(x), (x_scales, layer.scales)).bfloat16(), layer(x, x_scales))


@pytest.mark.parametrize(
    ("rows", "size", "biased"),
    [
        pytest.param(1 << 16, (64, 48), False, id="many-rows"),
        pytest.param(5, (64, 48), True, id="bias"),
        pytest.param(5, (33, 20), False, id="odd"),
    ],
)
def test_scales_are_not_left_where_the_product_needs_them(
    rows: int, size: tuple[int, int], biased: bool, device: torch.device
) -> None:
    made: dict[str, Any] = {"dtype": torch.float32, "device": device}
    bias = random(size[0], **made) if biased else None
    assert not Fp8Linear(*quantize_weight(random(*size, **made)), bias).best_unscaled(rows)
