"""Activation functions. What they are given may be overwritten.

On the CPU a value must not depend on where it lies. torch computes the last few elements of each
thread's share with other code than the rest, whose results differ in the last bit for silu and gelu;
where a share ends depends on the number of rows and threads. Written out with exp and tanh, which torch
computes alike everywhere, they give the same bits wherever a value lies. Of gelu by erf and of relu
torch's own do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]


def _exact(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32


def silu(x: Tensor) -> Tensor:
    return x / x.neg().exp_().add_(1.0) if _exact(x) else F.silu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    if not _exact(x):
        return F.gelu(x, approximate="tanh")
    inner = (x * x).mul_(0.044715).add_(1.0).mul_(x).mul_(math.sqrt(2.0 / math.pi))
    return inner.tanh_().add_(1.0).mul_(x).mul_(0.5)


def gelu(x: Tensor) -> Tensor:
    # In place: fresh memory for a step's widest tensor costs more than the function itself.
    return torch.ops.aten.gelu_(x)  # type: ignore[no-any-return]


ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu": F.relu_,
}
