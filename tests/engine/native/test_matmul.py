"""Products of small integers, against the same integers in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from penstock.engine.native.model import pack
from penstock.engine.native.quantized import from_floats
from tests.engine.native.kernels import needs_kernels
from tests.engine.native.layers import head_alone, mlp_alone, random_small
from tests.engine.native.small import floats_of, shrunk
from tests.engine.native.stepping import Stepper

pytestmark = [needs_kernels, pytest.mark.usefixtures("variant")]
ROWS = 9
SIZES = [(1, 1), (31, 33), (32, 32), (48, 199), (64, 70), (130, 5), (576, 64)]


def integer_rows(columns: int) -> torch.Tensor:
    """Rows that are whole numbers times one number for each 32: nothing of them is rounded away."""
    random = torch.Generator().manual_seed(columns)
    groups = -(-columns // 32)
    rows = torch.randint(-127, 128, (ROWS, groups, 32), generator=random).float()
    rows[:, :, 0] = 127
    rows *= torch.rand(ROWS, groups, 1, generator=random) + 0.1
    return rows.view(ROWS, -1)[:, :columns].contiguous()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
@pytest.mark.parametrize("with_bias", [False, True])
def test_products_are_exact_to_float_rounding_for_any_size(
    bits: int, inputs: int, outputs: int, with_bias: bool
) -> None:
    weight = random_small(outputs, inputs, bits, scale=0.25)
    random = torch.Generator().manual_seed(1)
    bias = torch.randn(outputs, generator=random) if with_bias else None
    norm = torch.ones(inputs)
    hidden = integer_rows(inputs)
    model = head_alone(pack(weight, bias), norm)
    found = model.logits(hidden).clone()
    normed = hidden.double() / (hidden.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
    # Terms rather than their sum: where they cancel, their rounding stays.
    floats = torch.from_numpy(floats_of(weight)).double()
    wanted = normed @ floats.T
    q, m = (np.abs(part).astype(np.float64) for part in (weight.scales, weight.offsets))
    largest = torch.from_numpy((q * 2**bits + m).repeat(32, axis=1)[:, :inputs] * weight.scale)
    tolerance = (normed.abs() @ largest.T) * 2e-6 + 1e-6
    if bias is not None:
        wanted += bias
    assert ((found - wanted).abs() <= tolerance).all()
    # Bit for bit the same in any company, and by any number of threads.
    for count in range(1, ROWS):
        assert torch.equal(model.logits(hidden[:count]), found[:count])
        assert torch.equal(model.logits(hidden[ROWS - count :]), found[ROWS - count :])


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_threads_share_the_work_without_a_difference(threads: int) -> None:
    head = pack(random_small(199, 48, 4))
    norm = torch.rand(48, generator=torch.Generator().manual_seed(0)) + 0.5
    hidden = torch.randn(ROWS, 48, generator=torch.Generator().manual_seed(1))
    alone, shared = head_alone(head, norm), head_alone(head, norm, threads)
    for count in (1, 2, ROWS):
        assert torch.equal(alone.logits(hidden[:count]), shared.logits(hidden[:count]))


@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-38, 1e-20, 1e18])
def test_rows_of_any_size_become_numbers(size: float) -> None:
    weight = random_small(40, 64, 8)
    model = head_alone(pack(weight), torch.ones(64))
    hidden = integer_rows(64) / 127 * size
    found = model.logits(hidden)
    assert found.isfinite().all()
    normed = hidden.double() / (hidden.double().square().mean(-1, keepdim=True) + 1e-6).sqrt()
    wanted = normed @ torch.from_numpy(floats_of(weight)).double().T
    assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max() + 1e-25


@pytest.mark.parametrize("odd", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [0, 17, 47])
def test_a_row_that_is_not_a_number_spoils_only_its_own_results(odd: float, place: int) -> None:
    model = head_alone(pack(random_small(70, 48, 4)), torch.ones(48))
    hidden = torch.randn(ROWS, 48, generator=torch.Generator().manual_seed(1))
    expected = model.logits(hidden).clone()
    hidden[3, place] = odd
    found = model.logits(hidden)
    assert found[3].isnan().all()
    found[3] = expected[3]
    assert torch.equal(found, expected)


def test_a_weight_that_is_not_a_number_spoils_only_its_own_column() -> None:
    weight = torch.randn(70, 48, generator=torch.Generator().manual_seed(1))
    hidden = torch.randn(ROWS, 48, generator=torch.Generator().manual_seed(2))
    expected = head_alone(pack(from_floats(weight)), torch.ones(48)).logits(hidden).clone()
    weight[33, 40] = torch.nan
    found = head_alone(pack(from_floats(weight)), torch.ones(48)).logits(hidden)
    assert found[:, 33].isnan().all()
    found[:, 33] = expected[:, 33]
    assert torch.equal(found, expected)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("inner", [1, 15, 16, 17, 40, 100])
def test_gates_stand_beside_what_they_gate(bits: int, inner: int) -> None:
    """Each result of the gated matrix is brought out by a matrix that has a single one in each row."""
    hidden = inner
    embedding = random_small(20, hidden, 8)
    gate_up, bias = random_small(2 * inner, hidden, bits), torch.linspace(-3, 3, 2 * inner)
    down = from_floats(torch.eye(inner))
    model = mlp_alone(embedding, pack(gate_up, bias, gated=True), down, "relu")
    tokens = list(range(20))
    (found,) = Stepper(model, [tokens], 20).step([(0, 0, 20)])
    states = torch.from_numpy(floats_of(embedding))
    gate, up = (shrunk(states) @ torch.from_numpy(floats_of(gate_up)).double().T + bias).chunk(2, dim=-1)
    wanted = states + gate.relu() * up
    # Half a step of the integers that carry the results into the last matrix.
    step = (gate.relu() * up).abs().amax(-1, keepdim=True) / 127
    assert ((found - wanted).abs() <= 0.51 * step + 0.005 * wanted.abs() + 1e-3).all()
