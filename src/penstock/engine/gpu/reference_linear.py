"""What the matmuls for few rows must compute, in plain torch and float32."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from penstock.engine.kernels.activation import Activation


def norm_linear(
    hidden: Tensor,
    norm_weight: Tensor,
    eps: float,
    weight: Tensor,
    scales: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    return linear(_normed(hidden, norm_weight, eps), weight, scales, bias)


def gated_linear(
    hidden: Tensor,
    norm_weight: Tensor | None,
    eps: float,
    weight: Tensor,
    activation: Activation,
    scales: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    x = hidden if norm_weight is None else _normed(hidden, norm_weight, eps)
    gate, up = linear(x, weight, scales, bias).chunk(2, dim=-1)
    return _ACTIVATIONS[activation](gate) * up


def linear_add(
    x: Tensor,
    weight: Tensor,
    hidden: Tensor,
    scales: Tensor | None = None,
    bias: Tensor | None = None,
    multiplier: float = 1.0,
) -> Tensor:
    return hidden.float() + multiplier * linear(x, weight, scales, bias)


def linear(x: Tensor, weight: Tensor, scales: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    wide = weight.float() if scales is None else weight.float() * scales[:, None]
    return F.linear(x.float(), wide, None if bias is None else bias.float())


def _normed(hidden: Tensor, norm_weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(hidden.float(), norm_weight.shape, norm_weight.float(), eps)


_ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}
