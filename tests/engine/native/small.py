"""The native path's arithmetic in plain torch: the same integers, everything else in double precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from penstock.engine.kernels.attention import KVLayer, write_kv
from penstock.engine.models import decoder, loader
from penstock.engine.models.decoder import Decoder
from penstock.engine.native.library import GROUP
from penstock.engine.native.quantized import Quantized, from_floats
from tests.engine.models.loading import load_decoder


def floats_of(weight: Quantized) -> npt.NDArray[np.float32]:
    grouped = weight.values.reshape(*weight.scales.shape, GROUP).astype(np.float32)
    d, m = (part.astype(np.float32)[..., None] for part in (weight.scales, weight.offsets))
    return ((grouped * d + m) * weight.scale).reshape(weight.values.shape)[:, : weight.columns]


def shrunk(x: Tensor) -> Tensor:
    """Rows rounded to eight bits for each 32 of them, as floats again."""
    columns = x.shape[-1]
    padded = torch.nn.functional.pad(x.float(), (0, -columns % GROUP))
    groups = padded.view(*x.shape[:-1], -1, GROUP)
    largest = groups.abs().amax(-1, keepdim=True)
    inverse = torch.where(largest > 1e-30, 127.0 / largest, 0.0)
    rounded = (groups * inverse).round().double() * (largest / 127.0).double()
    return rounded.view(padded.shape)[..., :columns]


def through_small(weight: Tensor) -> Tensor:
    return torch.from_numpy(floats_of(from_floats(weight)))


class SmallLinear:
    """Of a weight whose values are already those of small integers."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.nbytes = weight.nbytes
        self._weight = weight.double()
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        y = torch.nn.functional.linear(shrunk(x), self._weight).float()
        return y if self._bias is None else y + self._bias


@contextmanager
def small_arithmetic(path: Path, weights: Callable[[Tensor], Tensor] = through_small) -> Iterator[Decoder]:
    """A decoder in torch that computes as the native path does, keys and values in half precision.

    `weights` says what becomes of a matrix. Only inside the context does it compute so.
    """

    def small(weight: Tensor, bias: Tensor | None = None) -> SmallLinear:
        return SmallLinear(weights(weight), bias)

    def write_half(layer: KVLayer, keys: Tensor, values: Tensor, places: Tensor) -> None:
        write_kv(layer, keys.half().float(), values.half().float(), places)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "Linear", small)
        patch.setattr(decoder, "write_kv", write_half)
        found, _ = load_decoder(path, torch.device("cpu"), "float32")
        found.embedding = weights(found.embedding)
        yield found
