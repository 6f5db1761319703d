"""Tensors of a model file, straight into their place on a device, fused where the decoder wants them so."""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.engine.models import layout
from penstock.engine.models.layout import Matrix
from penstock.engine.models.tensors import norm_vector
from penstock.engine.models.weights import Weights


class DeviceReader:
    def __init__(self, weights: Weights, device: torch.device, dtype: torch.dtype) -> None:
        self._weights = weights
        self._device = device
        self._dtype = dtype

    def matrix(self, matrix: Matrix, layer: int | None = None, expert: int | None = None) -> Tensor:
        shape = (sum(matrix.rows), matrix.columns)
        target = torch.empty(shape, dtype=self._dtype, device=self._device)
        for name, part in zip(matrix.names, target.split(matrix.rows), strict=True):
            part.copy_(self._weights.read(layout.Tensor(name, layer, expert)))
        return target

    def bias(self, matrix: Matrix, layer: int | None, expert: int | None = None) -> Tensor | None:
        if not matrix.bias:
            return None
        parts = [self._weights.read(layout.Tensor(name, layer, expert, bias=True)) for name in matrix.names]
        return torch.cat(parts).to(self._device, self._dtype)

    def norm(self, name: str, layer: int | None) -> Tensor:
        """The weight of a norm; in float32 where half precision would lose most of it."""
        from_one = self._weights.config.norm_weights_from_one
        vector = norm_vector(self._weights.read(layout.Tensor(name, layer)), from_one)
        return vector.to(self._device, vector.dtype if from_one else self._dtype)
