"""y = x W^T + b, with the weight laid out as the device likes it.

On the CPU a row's result must not depend on how many rows come with it. oneDNN's packed matmul keeps
that from two rows on (a single row may take another path), and is faster than the unpacked one; where
torch comes without oneDNN, MKL's matmul keeps it from twelve rows on.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# Rows that every matmul on the CPU gets at least (see above).
CPU_MIN_ROWS = 2 if torch.backends.mkldnn.is_available() else 12


class Linear:
    """A weight [out, in] and optional bias, ready to be applied to [rows, in]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.nbytes = weight.nbytes
        self._bias = bias
        self._packed: Tensor | None = None
        self._weight: Tensor | None = weight
        if (
            weight.device.type == "cpu"
            and weight.dtype == torch.float32
            and torch.backends.mkldnn.is_available()
        ):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
            self._weight = None

    def __call__(self, x: Tensor) -> Tensor:
        if self._packed is not None:
            return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        assert self._weight is not None
        return F.linear(x, self._weight, self._bias)
