"""The small kernels of a step compute what their plain forms do."""

from __future__ import annotations

import copy
from typing import get_args

import pytest
import torch
from torch import Tensor

from penstock.engine.gpu import reference_rows as reference
from penstock.engine.gpu.cache import PagedLayer, allocate
from penstock.engine.gpu.kernels import rotary
from penstock.engine.gpu.kernels.activation import activate
from penstock.engine.gpu.kernels.inputs import gather_inputs
from penstock.engine.gpu.kernels.norm import add_norm
from penstock.engine.gpu.kernels.quantize import quantize_rows
from penstock.engine.gpu.kernels.rotary import rotate_and_store
from penstock.engine.kernels.activation import Activation

FP8 = torch.float8_e4m3fn
DTYPES = [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]
# Of the largest value: a last bit that rounds the other way. Eight bits have three of mantissa.
ROUNDING = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3, FP8: 0.07}


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert found.dtype == expected.dtype
    found, expected, least = found.float(), expected.float(), ROUNDING[found.dtype]
    assert not found.isnan().any()
    torch.testing.assert_close(found, expected, rtol=least, atol=least * float(expected.abs().max()) / 8)


def random(*shape: int, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(device, dtype)


def poisoned(like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return torch.full_like(like, float("nan"), dtype=torch.float32).to(dtype or like.dtype)


def poisoned_scales(rows: int, device: torch.device) -> Tensor:
    return torch.full((rows,), float("nan"), device=device)


def some_factors(rows: int, columns: int, device: torch.device) -> reference.Factors:
    """Of both signs, so that one that is left out or taken twice is seen."""
    return random(rows, device=device, seed=5), random(columns, device=device, seed=6)


# ---------------------------------------------------------------- norms


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "size", "delta", "weight", "post", "multiplier"),
    [
        (3, 576, True, True, False, 1.0),
        (1, 64, False, True, False, 1.0),
        (2, 100, True, True, True, 1.0),
        (2, 1, True, True, False, 0.22),
        (5, 1000, True, False, False, 0.22),
        (0, 64, True, True, False, 1.0),
    ],
)
def test_a_residual_is_added_and_normed(
    device: torch.device,
    dtype: torch.dtype,
    rows: int,
    size: int,
    delta: bool,
    weight: bool,
    post: bool,
    multiplier: float,
) -> None:
    hidden = random(rows, size, device=device, dtype=dtype)
    added = random(rows, size, device=device, dtype=dtype, seed=1) if delta else None
    # A weight may be of higher precision than the rows.
    norm = random(size, device=device) if weight else None
    post_weight = random(size, device=device, dtype=dtype, seed=2) if post else None
    results = []
    for function in (add_norm, reference.add_norm):
        state, out = hidden.clone(), poisoned(hidden)
        function(state, added, norm, 1e-5, post_weight=post_weight, multiplier=multiplier, out=out)
        results.append((state, out))
    (state, out), (expected_state, expected) = results
    if rows:
        assert_close(state, expected_state)
        assert_close(out, expected)


@pytest.mark.parametrize("post", [False, True])
def test_factors_of_what_is_added_come_first(device: torch.device, post: bool) -> None:
    hidden, delta = random(3, 100, device=device), random(3, 100, device=device, seed=1)
    factors = some_factors(3, 100, device)
    post_weight = random(100, device=device, seed=2) if post else None
    product = delta * factors[0][:, None] * factors[1]
    found, expected = (hidden.clone(), poisoned(hidden)), (hidden.clone(), poisoned(hidden))
    rest = {"post_weight": post_weight, "multiplier": 0.5}
    add_norm(found[0], delta, hidden[0], 1e-2, factors=factors, out=found[1], **rest)
    reference.add_norm(expected[0], product, hidden[0], 1e-2, out=expected[1], **rest)
    assert_close(found[0], expected[0])
    assert_close(found[1], expected[1])


def test_a_residual_may_be_added_with_nothing_to_norm(device: torch.device) -> None:
    hidden, delta = random(3, 80, device=device), random(3, 80, device=device, seed=1)
    expected = hidden + delta
    add_norm(hidden, delta, None, 1e-5, out=hidden)
    torch.testing.assert_close(hidden, expected)


@pytest.mark.parametrize("summands", [1, 2, 4])
def test_what_is_added_may_come_in_parts(device: torch.device, summands: int) -> None:
    hidden = random(3, 80, device=device)
    parts = torch.stack([random(3, 80, device=device, seed=number) for number in range(1, summands + 1)])
    out, expected = torch.empty_like(hidden), (hidden.clone(), torch.empty_like(hidden))
    weight = random(80, device=device, seed=9)
    reference.add_norm(expected[0], parts.sum(0), weight, 1e-5, multiplier=0.5, out=expected[1])
    add_norm(hidden, parts, weight, 1e-5, multiplier=0.5, out=out)
    assert_close(hidden, expected[0])
    assert_close(out, expected[1])


def test_rows_may_be_part_of_wider_ones(device: torch.device) -> None:
    wide, weight = random(4, 200, device=device), torch.ones(96, device=device)
    before, out = wide.clone(), torch.zeros(4, 96, device=device)
    add_norm(wide[:, :96], wide[:, 96:192], weight, 1e-6, out=out)
    torch.testing.assert_close(wide[:, :96], before[:, :96] + before[:, 96:192])
    assert torch.equal(wide[:, 96:], before[:, 96:])


def test_a_norm_is_quantized_by_row(device: torch.device) -> None:
    hidden, weight = random(3, 576, device=device), random(576, device=device)
    hidden[1] = 0.0
    out, scales = poisoned(hidden, FP8), poisoned_scales(3, device)
    expected, expected_scales = poisoned(hidden, FP8), poisoned_scales(3, device)
    add_norm(hidden, None, weight, 1e-5, out=out, scales=scales)
    reference.add_norm(hidden, None, weight, 1e-5, out=expected, scales=expected_scales)
    torch.testing.assert_close(scales, expected_scales)
    assert_close(out, expected)
    assert not out[1].float().any(), "a row of zeros stays one"


# ---------------------------------------------------------------- eight bits


@pytest.mark.parametrize("dtype", DTYPES)
def test_quantized_rows_come_back_within_half_a_step(device: torch.device, dtype: torch.dtype) -> None:
    x = random(5, 300, device=device, dtype=dtype) * torch.tensor([1e-3, 1, 50, 0, 1], device=device)[:, None]
    x = x.to(dtype)
    out, scales = poisoned(x, FP8), poisoned_scales(5, device)
    quantize_rows(x, out=out, scales=scales)
    largest = x.float().abs().amax(dim=1)
    torch.testing.assert_close(scales, (largest / 448).clamp(min=1e-12))
    error = (out.float() * scales[:, None] - x.float()).abs()
    # Four significant bits; below the smallest exponent, steps of 2**-9.
    assert (error <= x.float().abs() / 16 + scales[:, None] * 2.0**-10 * 1.01).all()
    assert (out.float().abs().amax(dim=1)[largest > 0] == 448).all(), "the range is used"


# ---------------------------------------------------------------- activations


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", get_args(Activation))
def test_a_gate_is_activated(device: torch.device, dtype: torch.dtype, activation: Activation) -> None:
    gate_up = 3 * random(3, 2 * 1100, device=device, dtype=dtype)
    gate_up[0, 0], gate_up[0, 1] = 100.0, -100.0
    out, expected = poisoned(gate_up[:, :1100]), poisoned(gate_up[:, :1100])
    activate(gate_up, activation, out=out)
    reference.activate(gate_up, activation, out=expected)
    assert_close(out, expected)


def test_an_activated_gate_is_quantized_by_row(device: torch.device) -> None:
    gate_up = random(3, 2 * 300, device=device)
    gate_up[2] = 0.0
    out, expected = poisoned(gate_up[:, :300], FP8), poisoned(gate_up[:, :300], FP8)
    scales, expected_scales = poisoned_scales(3, device), poisoned_scales(3, device)
    activate(gate_up, "silu", out=out, scales=scales)
    reference.activate(gate_up, "silu", out=expected, scales=expected_scales)
    torch.testing.assert_close(scales, expected_scales)
    assert_close(out, expected)


@pytest.mark.parametrize("quantize", [False, True])
def test_factors_of_gate_and_up_come_first(device: torch.device, quantize: bool) -> None:
    gate_up, factors = random(3, 2 * 300, device=device), some_factors(3, 2 * 300, device)
    product = gate_up * factors[0][:, None] * factors[1]
    dtype = FP8 if quantize else torch.float32
    out, expected = poisoned(gate_up[:, :300], dtype), poisoned(gate_up[:, :300], dtype)
    scales = [poisoned_scales(3, device) if quantize else None for _ in range(2)]
    activate(gate_up, "silu", factors=factors, out=out, scales=scales[0])
    reference.activate(product, "silu", out=expected, scales=scales[1])
    assert_close(out, expected)
    if quantize:
        torch.testing.assert_close(scales[0], scales[1])


# ---------------------------------------------------------------- rotation and the cache


def angles(positions: int, rotated: int, device: torch.device) -> tuple[Tensor, Tensor]:
    turns = torch.outer(torch.arange(positions).float(), 1e4 ** -(torch.arange(0, rotated, 2) / rotated))
    return turns.cos().to(device), turns.sin().to(device)


def cache_of(
    kv_heads: int, dim: int, dtype: torch.dtype, device: torch.device, block_size: int
) -> PagedLayer:
    return allocate(1, kv_heads, 7, block_size, dim, dtype, device)[0]


def check_rotation(
    device: torch.device,
    *,
    dim: int,
    rotated: int,
    rows: int = 3,
    heads: int = 9,
    kv_heads: int = 3,
    norm: bool = False,
    dtype: torch.dtype = torch.float32,
    cache_dtype: torch.dtype | None = None,
    block_size: int = 16,
    factored: bool = False,
) -> None:
    qkv = random(rows, (heads + 2 * kv_heads) * dim, device=device, dtype=dtype)
    layer = cache_of(kv_heads, dim, cache_dtype or dtype, device, block_size)
    expected_layer = copy.deepcopy(layer)
    shuffled = torch.randperm(7 * block_size, generator=torch.Generator().manual_seed(rows))
    places = shuffled[:rows].to(device)
    positions = torch.arange(5, 5 + rows, device=device) % 50
    cos, sin = angles(50, rotated, device) if rotated else (None, None)
    weights = [random(dim, device=device, seed=at) if norm else None for at in (3, 4)]
    found, expected = qkv.clone(), qkv.clone()
    factors = some_factors(rows, qkv.shape[1], device) if factored else None
    if factors is not None:
        expected *= factors[0][:, None] * factors[1]
    for function, state, cache, given in (
        (rotate_and_store, found, layer, factors),
        (reference.rotate_and_store, expected, expected_layer, None),
    ):
        function(
            state,
            cache,
            positions,
            places,
            heads=heads,
            kv_heads=kv_heads,
            cos=cos,
            sin=sin,
            query_norm=weights[0],
            key_norm=weights[1],
            eps=1e-6,
            factors=given,
        )
    assert_close(found[:, : heads * dim], expected[:, : heads * dim])
    assert torch.equal(found[:, heads * dim :], qkv[:, heads * dim :]), "keys and values are only read"
    assert_close(layer.keys, expected_layer.keys)
    assert_close(layer.values, expected_layer.values)
    if layer.key_scales is not None:
        torch.testing.assert_close(layer.key_scales, expected_layer.key_scales)
        torch.testing.assert_close(layer.value_scales, expected_layer.value_scales)


@pytest.mark.parametrize("norm", [False, True], ids=["", "normed"])
@pytest.mark.parametrize(
    ("dim", "rotated"), [(64, 64), (80, 80), (96, 96), (128, 64), (256, 256), (64, 0), (80, 32)]
)
def test_heads_are_normed_rotated_and_stored(
    device: torch.device, dim: int, rotated: int, norm: bool
) -> None:
    check_rotation(device, dim=dim, rotated=rotated, norm=norm)


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_of_any_precision_are_stored(device: torch.device, dtype: torch.dtype) -> None:
    check_rotation(device, dim=64, rotated=64, rows=1, norm=True, dtype=dtype)


@pytest.mark.gpu
def test_many_rows_are_stored(device: torch.device) -> None:
    check_rotation(device, dim=64, rotated=64, rows=514, heads=3, kv_heads=1, block_size=128)


def test_a_program_may_take_several_rows(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotary, "choose_shape", lambda rows: rotary.Shape(2, 8, 4))
    check_rotation(device, dim=64, rotated=64, rows=3, heads=3, kv_heads=1)


@pytest.mark.parametrize(("dim", "rotated"), [(128, 128), (80, 32)])
def test_keys_and_values_are_stored_in_eight_bits_with_their_scales(
    device: torch.device, dim: int, rotated: int
) -> None:
    check_rotation(device, dim=dim, rotated=rotated, norm=True, cache_dtype=FP8)


@pytest.mark.parametrize(("dim", "rotated"), [(64, 64), (80, 32), (64, 0)])
@pytest.mark.parametrize("norm", [False, True], ids=["", "normed"])
def test_factors_of_queries_keys_and_values_come_first(
    device: torch.device, dim: int, rotated: int, norm: bool
) -> None:
    check_rotation(device, dim=dim, rotated=rotated, norm=norm, factored=True)


# ---------------------------------------------------------------- inputs


def test_inputs_are_gathered_from_slots(device: torch.device) -> None:
    slots, rows, block_size = 6, 41, 16
    generator = torch.Generator().manual_seed(0)
    table = torch.randint(-2, 1000, (slots, 101), dtype=torch.int32, generator=generator).to(device)
    blocks = torch.randint(0, 2**30, (slots, 7), dtype=torch.int32, generator=generator).to(device)
    chosen = torch.randint(0, slots, (rows,), dtype=torch.int32, generator=generator).to(device)
    starts = torch.randint(-1, 101, (rows,), dtype=torch.int32, generator=generator).to(device)
    starts[-1] = -1
    results = []
    for function in (gather_inputs, reference.gather_inputs):
        wide = torch.full((3, rows), -7, dtype=torch.int64, device=device)
        lengths = torch.full((rows,), -7, dtype=torch.int32, device=device)
        function(
            table,
            blocks,
            chosen,
            starts,
            block_size=block_size,
            scratch=12345 * block_size,
            tokens=wide[0],
            positions=wide[1],
            places=wide[2],
            lengths=lengths,
        )
        results.append((wide, lengths))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    padding = results[0][0][:, starts < 0]
    assert (padding == torch.tensor([[0], [0], [12345 * block_size]], device=device)).all()
