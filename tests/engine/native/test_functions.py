"""The kernels' own exp and tanh, as activations show them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.engine.kernels.activation import Activation
from penstock.engine.native.model import pack
from penstock.engine.native.quantized import Quantized
from tests.engine.native.kernels import needs_kernels
from tests.engine.native.layers import mlp_alone, zeros
from tests.engine.native.stepping import Stepper

pytestmark = [needs_kernels, pytest.mark.usefixtures("variant")]
# The whole range, close to where formulas change, and beyond where exp is zero or infinite.
POINTS = torch.cat(
    [
        torch.linspace(-12, 12, 301),
        torch.linspace(-0.2, 0.2, 81),
        torch.logspace(-34, 4, 60),
        -torch.logspace(-34, 4, 60),
        torch.tensor([0.0, -0.0, 88.0, -88.0, 89.5, -89.5, 104.5, -104.5, 1e30, -1e30]),
    ]
)


def applied(activation: Activation, points: Tensor) -> Tensor:
    """The function of each point, through a layer of which nothing else is left.

    The points are biases of gates whose weights are zero; what they gate is one. Each stands alone among
    32, so that it is the largest of its group of integers and loses only a rounding or two.
    """
    count = len(points)
    inner = 32 * count
    alone = torch.zeros(2, inner)
    alone[:, ::32] = torch.stack((points, torch.ones(count)))
    down = zeros(count, inner)
    ones = Quantized(down.values, down.scales + np.float16(1), down.offsets, inner, 8)
    ones.values[np.arange(count), 32 * np.arange(count)] = 1
    # A matrix of ones and zeros, exactly.
    gate_up = pack(zeros(2 * inner, count), alone.flatten(), gated=True)
    model = mlp_alone(zeros(1, count), gate_up, ones, activation)
    (found,) = Stepper(model, [[0]], 1).step([(0, 0, 1)])
    return found[0]


FUNCTIONS: dict[Activation, tuple[Callable[[Tensor], Tensor], float, float]] = {
    # In double precision, and what may be wrong: relative, and relative to the point.
    "silu": (F.silu, 1e-6, 0.0),
    "gelu": (F.gelu, 1e-6, 2e-7),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), 1e-6, 2e-7),
    "relu": (F.relu, 2e-7, 0.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_activations_are_right_over_the_whole_range(name: Activation) -> None:
    function, relative, by_point = FUNCTIONS[name]
    found = torch.cat([applied(name, part) for part in POINTS.split(128)]).double()
    wanted = function(POINTS.double())
    # Smaller groups of integers are zero.
    tolerance = relative * wanted.abs() + by_point * POINTS.double().abs() + 1e-30
    wrong = ((found - wanted).abs() > tolerance).nonzero().flatten()
    assert not len(wrong), [(float(POINTS[i]), float(found[i]), float(wanted[i])) for i in wrong[:5]]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_not_finite_does_not_become_a_number(name: Activation) -> None:
    found = applied(name, torch.tensor([torch.nan, torch.inf, 1.0]))
    assert not found[:2].isfinite().any()
