"""Activations: the right values, and on the CPU the same bits wherever a value lies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.engine.kernels.activation import ACTIVATIONS

REFERENCES: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "relu": F.relu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def values(count: int) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(0)) * 4


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_are_those_of_torch(name: str) -> None:
    x = torch.cat((values(10_000), torch.tensor([0.0, -0.0, 1e30, -1e30, 100.0, -100.0])))
    assert torch.allclose(ACTIVATIONS[name](x.clone()), REFERENCES[name](x), atol=1e-6, rtol=1e-5)
    assert ACTIVATIONS[name](torch.tensor([float("nan")])).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_half_precision_is_left_to_torch(name: str, dtype: torch.dtype) -> None:
    x = values(1000).to(dtype)
    assert torch.equal(ACTIVATIONS[name](x.clone()), REFERENCES[name](x))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_value_does_not_depend_on_its_place(name: str) -> None:
    """Pieces of seven are computed as the ends of a thread's share are."""
    x = values(70_000)
    pieces = torch.cat([ACTIVATIONS[name](piece.clone()) for piece in x.split(7)])
    assert torch.equal(ACTIVATIONS[name](x), pieces)
