"""A mixture of experts: what each row's experts give, added up, whatever company the row has."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.engine.kernels.activation import silu
from penstock.engine.kernels.linear import Linear
from penstock.engine.layers.experts import Experts
from penstock.engine.layers.mlp import GatedMLP

HIDDEN, INNER, COUNT = 24, 40, 6


def weights(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.4


ROUTER = weights(COUNT, HIDDEN, seed=0)
GATE_UP = weights(COUNT, 2 * INNER, HIDDEN, seed=1)
DOWN = weights(COUNT, HIDDEN, INNER, seed=2)
ROWS = weights(50, HIDDEN, seed=3)


def experts(per_token: int, normalized: bool) -> Experts:
    mlps = [GatedMLP(Linear(GATE_UP[e].clone()), Linear(DOWN[e].clone()), silu) for e in range(COUNT)]
    return Experts(Linear(ROUTER.clone()), mlps, per_token, normalized=normalized)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("per_token", [1, 2, COUNT])
def test_rows_get_the_shares_of_their_experts(per_token: int, normalized: bool) -> None:
    found = experts(per_token, normalized)(ROWS)
    for row, got in zip(ROWS, found, strict=True):
        shares, chosen = torch.softmax(ROUTER @ row, dim=-1).topk(per_token)
        if normalized:
            shares = shares / shares.sum()
        wanted = torch.zeros(HIDDEN)
        for share, expert in zip(shares, chosen.tolist(), strict=True):
            gate, up = (GATE_UP[expert] @ row).chunk(2)
            wanted += share * (DOWN[expert] @ (F.silu(gate) * up))
        assert (got - wanted).abs().max() < 1e-4


def test_a_row_is_bitwise_the_same_in_any_company_and_order() -> None:
    """Rows long enough that a matmul of one row alone adds up in another order."""
    hidden, inner = 2048, 256
    mlps = [
        GatedMLP(
            Linear(weights(2 * inner, hidden, seed=10 + e)), Linear(weights(hidden, inner, seed=20 + e)), silu
        )
        for e in range(3)
    ]
    layer = Experts(Linear(weights(3, hidden, seed=9)), mlps, 2, normalized=True)
    rows = weights(20, hidden, seed=8)
    together = layer(rows)
    for first in range(0, 20, 2):
        assert torch.equal(layer(rows[first : first + 2]), together[first : first + 2])
    order = torch.randperm(20, generator=torch.Generator().manual_seed(5))
    assert torch.equal(layer(rows[order]), together[order])


def test_all_experts_count_as_weights() -> None:
    assert experts(1, True).nbytes == ROUTER.nbytes + GATE_UP.nbytes + DOWN.nbytes
