"""The gated feed-forward part of a layer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from penstock.engine.kernels.linear import Linear


class GatedMLP:
    """down(activate(gate(x)) * up(x)), gate and up being one matrix."""

    def __init__(self, gate_up: Linear, down: Linear, activate: Callable[[Tensor], Tensor]) -> None:
        self._gate_up = gate_up
        self._down = down
        self._activate = activate

    @property
    def nbytes(self) -> int:
        return self._gate_up.nbytes + self._down.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(self._activate(gate) * up)
