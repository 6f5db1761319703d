"""Chosen algorithms of the library's matmuls: the table, and on a GPU what they compute."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.engine.gpu import blas, blas_choices
from penstock.engine.gpu.blas import Chosen, Product, blas_of, chosen
from penstock.engine.gpu.blas_choices import (
    FINE_ROWS,
    Algorithm,
    Table,
    choice,
    matrix_name,
    read,
    version_name,
    write,
)
from penstock.engine.gpu.linear import GpuLinear

ONE = Algorithm(66, 513, 35, 1, 0, 1, 12, 0, 3)
OTHER = Algorithm(67, 20, 15, 4, 2, 0, 4_000_000_000, 0, 2)
OUTPUTS, INPUTS = 512, 1024
DTYPES = [torch.bfloat16, torch.float16, torch.float8_e4m3fn]
TOLERANCE = {torch.bfloat16: 5e-3, torch.float16: 1e-3, torch.float8_e4m3fn: 1e-2}


@pytest.fixture(autouse=True)
def _told_anew() -> Iterator[None]:
    blas._refused.cache_clear()
    blas._chosen.cache_clear()
    yield
    blas._chosen.cache_clear()


@pytest.fixture
def library(device: torch.device) -> blas.Blas:
    assert device.type == "cuda"
    found = blas_of(torch.cuda.current_device())
    assert found is not None
    return found


def random(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(rows, columns, device="cuda").to(dtype)


def difference(actual: Tensor, x: Tensor, weight: Tensor) -> float:
    expected = x.float() @ weight.float().t()
    return float((actual.float() - expected).norm() / expected.norm())


def test_a_table_is_read_as_it_was_written() -> None:
    table: Table = {
        "a GPU": {"13.1": {"bfloat16 8x16": {16: ONE, 8: None, 128: OTHER}, "float16 8x16": {64: ONE}}},
        "another GPU": {"12.9": {"bfloat16 8x16": {16: OTHER}}},
    }
    assert read(write(table)) == table
    assert '"128": [67, 20, 15, 4, 2, 0, 4000000000, 0, 2]' in write(table)


def test_many_rows_take_only_what_was_measured_for_exactly_so_many() -> None:
    choices = {64: OTHER, 8192: ONE}
    assert choice(choices, 8192) == ONE
    assert choice(choices, 8191) is None
    assert choice(choices, 200) is None


def test_rows_between_two_measured_sizes_take_the_algorithm_of_the_larger() -> None:
    choices = {16: ONE, 32: None, 64: OTHER}
    assert [choice(choices, rows) for rows in (1, 16, 17, 32, 33, 64, 65)] == [
        *(ONE, ONE),
        *(None, None),
        *(OTHER, OTHER),
        None,
    ]


def test_a_version_is_named_without_its_patch() -> None:
    assert [version_name(version) for version in (130101, 130100, 120904)] == ["13.1", "13.1", "12.9"]


def test_the_table_that_comes_along_keeps_sums_in_float32_and_asks_for_rows_that_are_looked_up() -> None:
    text = blas_choices.FILE.read_text()
    for versions in read(text).values():
        for matrices in versions.values():
            for choices in matrices.values():
                assert all(rows > 0 for rows in choices)
                assert all(
                    each is None or each.split_k <= 1 or each.reduction == 2 for each in choices.values()
                )


def test_a_matrix_in_plain_memory_is_left_to_torch() -> None:
    assert not chosen(torch.zeros(16, 16, dtype=torch.bfloat16))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 24, 37, 256])
def test_proposed_algorithms_compute_the_product_after_being_made_again(
    rows: int, dtype: torch.dtype, library: blas.Blas
) -> None:
    x, weight = random(rows, INPUTS, dtype), random(OUTPUTS, INPUTS, dtype)
    product = Product(library, dtype, OUTPUTS, INPUTS, rows)
    proposed = product.heuristics(6)
    assert proposed
    for algorithm in proposed:
        out = torch.full((rows, OUTPUTS), float("nan"), dtype=product.dtype, device="cuda")
        assert product.launch(x, weight, out, product.ready(algorithm)) == 0
        assert difference(out, x, weight) < TOLERANCE[dtype], algorithm


@pytest.mark.gpu
@pytest.mark.parametrize("summands", [2, 4])
def test_parts_of_a_product_add_up_to_it(
    summands: int, library: blas.Blas, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight = random(40, INPUTS, torch.bfloat16), random(OUTPUTS, INPUTS, torch.bfloat16)
    proposed = Product(library, torch.bfloat16, OUTPUTS, INPUTS, 40, summands).heuristics(6, split=False)
    assert proposed
    name = matrix_name("bfloat16", OUTPUTS, INPUTS, summands)
    for algorithm in proposed:
        blas._chosen.cache_clear()
        table = {
            torch.cuda.get_device_name(): {version_name(library.library.version): {name: {40: algorithm}}}
        }
        monkeypatch.setattr(blas, "checked_in", lambda table=table: table)
        found = GpuLinear(weight).summands(x)
        assert found.shape == (summands, 40, OUTPUTS)
        assert difference(found.sum(0), x, weight) < 1e-5, algorithm
        assert difference(GpuLinear(weight)(x), x, weight) < TOLERANCE[torch.bfloat16]


@pytest.mark.gpu
def test_a_linear_takes_the_algorithm_of_the_table_also_when_captured(
    library: blas.Blas, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight = random(48, INPUTS, torch.bfloat16), random(OUTPUTS, INPUTS, torch.bfloat16)
    algorithm = Product(library, torch.bfloat16, OUTPUTS, INPUTS, 48).heuristics(1)[0]
    table: Table = {
        torch.cuda.get_device_name(): {
            version_name(library.library.version): {matrix_name("bfloat16", OUTPUTS, INPUTS): {64: algorithm}}
        }
    }
    monkeypatch.setattr(blas, "checked_in", lambda: table)
    linear = GpuLinear(weight)
    assert linear._chosen is not None
    assert difference(linear(x), x, weight) < TOLERANCE[torch.bfloat16]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = linear._chosen(x, weight)
    assert out is not None
    x.copy_(random(48, INPUTS, torch.bfloat16))
    graph.replay()
    assert difference(out, x, weight) < TOLERANCE[torch.bfloat16]


@pytest.mark.gpu
def test_what_was_not_chosen_or_lies_unevenly_is_left_to_torch(library: blas.Blas) -> None:
    weight = random(OUTPUTS, INPUTS, torch.bfloat16)
    algorithm = Product(library, torch.bfloat16, OUTPUTS, INPUTS, 32).heuristics(1)[0]
    products = Chosen(library, torch.bfloat16, OUTPUTS, INPUTS, {16: None, 32: algorithm})
    assert products(random(32, INPUTS, torch.bfloat16), weight) is not None
    assert products(random(16, INPUTS, torch.bfloat16), weight) is None
    assert products(random(33, INPUTS, torch.bfloat16), weight) is None
    assert products(random(FINE_ROWS + 1, INPUTS, torch.bfloat16), weight) is None
    assert products(random(32, 2 * INPUTS, torch.bfloat16)[:, :INPUTS], weight) is None


@pytest.mark.gpu
def test_an_algorithm_that_the_library_does_not_have_is_told_once_and_left_to_torch(
    library: blas.Blas, caplog: pytest.LogCaptureFixture
) -> None:
    x, weight = random(32, INPUTS, torch.bfloat16), random(OUTPUTS, INPUTS, torch.bfloat16)
    products = Chosen(library, torch.bfloat16, OUTPUTS, INPUTS, {64: ONE._replace(id=9999)})
    with caplog.at_level(logging.WARNING, logger="penstock.engine"):
        assert products(x, weight) is None
        assert products(x[:16], weight) is None
    (record,) = caplog.records
    assert "left to torch" in record.message
    assert torch.equal(GpuLinear(weight)(x), F.linear(x, weight))
