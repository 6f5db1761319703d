"""Small integers mean what the file means, or what the floats were to within half a step."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from penstock.engine.native.quantized import Quantized, from_floats, from_gguf, stacked
from tests.engine.native.kernels import needs_kernels
from tests.engine.native.small import floats_of

gguf = pytest.importorskip("gguf")

HALVES = {  # of each kind's blocks: how many weights, bytes, and where numbers of half precision stand
    "Q4_0": (32, 18, (0,)),
    "Q4_1": (32, 20, (0, 2)),
    "Q5_0": (32, 22, (0,)),
    "Q5_1": (32, 24, (0, 2)),
    "Q8_0": (32, 34, (0,)),
    "Q4_K": (256, 144, (0, 2)),
    "Q5_K": (256, 176, (0, 2)),
}
ROWS = 37


def random_rows(kind: str, columns: int, *, largest: float = 4.0) -> np.ndarray:
    """Any bytes; numbers of half precision of all sizes up to the largest, denormal ones and zeros too."""
    rng = np.random.default_rng(len(kind) + columns)
    weights, size, places = HALVES[kind]
    raw = rng.integers(0, 256, (ROWS * columns // weights, size), dtype=np.uint8)
    for place in places:
        exponents = rng.uniform(-26, np.log2(largest), len(raw))
        halves = (2.0**exponents * rng.choice([-1, 1], len(raw))).astype(np.float16)
        raw[:, place : place + 2] = halves.view(np.uint8).reshape(-1, 2)
    return raw.reshape(ROWS, -1)


def meant(kind: str, raw: np.ndarray) -> np.ndarray:
    return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
@pytest.mark.parametrize("columns", [32, 96, 512])
def test_a_files_integers_are_taken_as_they_are(kind: str, columns: int) -> None:
    raw = random_rows(kind, columns)
    found = from_gguf(kind, raw, columns)
    assert found is not None
    assert found.bits == (4 if kind.startswith("Q4") else 8)
    assert found.values.max() < 2**found.bits
    # q (d as float) - 8 d and (q - 8) d may differ in the last bit of the larger of the two.
    tolerance = np.abs(found.offsets.astype(np.float32)).repeat(32, axis=1) * 2.0**-22
    assert (np.abs(floats_of(found) - meant(kind, raw)) <= tolerance).all()


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K"])
@pytest.mark.parametrize("columns", [256, 768])
def test_the_k_kinds_lose_only_what_half_precision_loses(kind: str, columns: int) -> None:
    raw = random_rows(kind, columns, largest=0.5)
    found = from_gguf(kind, raw, columns)
    assert found is not None
    assert found.values.max() < (16 if kind == "Q4_K" else 32)
    step = 2.0**-11  # of half precision, relative; below its smallest number an absolute one
    d = np.abs(found.scales.astype(np.float32)).repeat(32, axis=1) * found.values
    m = np.abs(found.offsets.astype(np.float32)).repeat(32, axis=1)
    tolerance = ((d + m) * step + (found.values + 1) * 2.0**-25) * found.scale
    assert (np.abs(floats_of(found) - meant(kind, raw)) <= tolerance).all()


@pytest.mark.parametrize("kind", sorted(HALVES))
@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, 65504.0])
def test_what_half_precision_cannot_hold_is_left_to_floats(kind: str, odd: float) -> None:
    raw = random_rows(kind, 256)
    raw[3, 0:2] = np.array([odd], dtype=np.float16).view(np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = from_gguf(kind, raw, 256)
    if kind.endswith("_1") and np.isfinite(odd):
        assert found is not None  # its offset is stored, so nothing is multiplied
    else:
        assert found is None


@pytest.mark.parametrize(("kind", "columns"), [("F16", 32), ("Q6_K", 256), ("IQ4_NL", 32), ("Q8_0", 48)])
def test_kinds_of_other_groups_are_left_to_floats(kind: str, columns: int) -> None:
    assert from_gguf(kind, np.zeros((1, 512), dtype=np.uint8), columns) is None


def test_rows_and_stacks_are_those_of_the_floats() -> None:
    parts = [from_gguf(kind, random_rows(kind, 64), 64) for kind in ("Q4_1", "Q8_0")]
    first, second = (part for part in parts if part is not None)
    both = stacked([first, second])
    assert both.bits == 8
    np.testing.assert_array_equal(floats_of(both), np.concatenate((floats_of(first), floats_of(second))))
    order = np.array([5, 0, 5, 36])
    np.testing.assert_array_equal(floats_of(first.rows(order)), floats_of(first)[order])
    assert stacked([first]) is first


def within_half_a_step(found: Quantized, weight: torch.Tensor) -> bool:
    columns = weight.shape[1]
    step = found.scales.astype(np.float64).repeat(32, axis=1)[:, :columns] * found.scale
    size = np.abs(weight.double().numpy())
    error = np.abs(floats_of(found).astype(np.float64) - weight.double().numpy())
    return bool((error <= 0.5 * step + size * 2.0**-21 + 2.0**-149).all())


@needs_kernels
@pytest.mark.parametrize("columns", [1, 15, 31, 32, 33, 72, 160])
@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-38, 1e-44, 1e30, 3e38])
def test_floats_are_rounded_to_the_nearest_step_of_their_group(columns: int, size: float) -> None:
    weight = torch.rand(9, columns, generator=torch.Generator().manual_seed(columns)) * 2 - 1
    weight *= size
    weight[2] = weight[2].abs()  # far from zero all of it, so that the offset matters
    weight[3] = 0.0
    weight[4] = weight[4, 0]
    found = from_floats(weight)
    assert found.bits == 8
    assert found.columns == columns
    assert np.isfinite(floats_of(found)).all()
    assert within_half_a_step(found, weight)
    assert (floats_of(found)[3] == 0).all()


@needs_kernels
@pytest.mark.usefixtures("variant")
def test_a_step_is_a_255th_of_what_a_group_spans() -> None:
    weight = torch.randn(50, 320, generator=torch.Generator().manual_seed(0))
    weight[7, 40] = 1000.0  # its own group's matter, and nobody else's
    found = from_floats(weight)
    groups = weight.view(50, 10, 32)
    low, high = groups.amin(-1), groups.amax(-1)
    # Half precision rounds the lower end down and the step up.
    allowed = ((high - low + low.abs() * 2.0**-10) / 255 * (1 + 2.0**-10)).numpy()
    assert (found.scales.astype(np.float32) * found.scale <= allowed + 1e-6).all()


@needs_kernels
def test_small_groups_beside_a_large_weight_keep_their_steps() -> None:
    weight = torch.full((2, 64), 1e-3)
    weight[0, 0] = 100.0
    weight[1] *= torch.linspace(-1, 1, 64)
    found = floats_of(from_floats(weight))
    assert np.abs(found[1] - weight[1].numpy()).max() < 1e-5


@needs_kernels
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 5, 31, 32, 69])
def test_a_weight_that_is_not_finite_stays_so_and_leaves_others_alone(odd: float, place: int) -> None:
    weight = torch.randn(3, 70, generator=torch.Generator().manual_seed(0))
    usual = floats_of(from_floats(weight))
    weight[1, place] = odd
    found = floats_of(from_floats(weight))
    assert not np.isfinite(found[1, place])
    group = slice(place // 32 * 32, place // 32 * 32 + 32)
    found[1, group] = usual[1, group]
    np.testing.assert_array_equal(found, usual)
