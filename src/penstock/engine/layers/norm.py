"""Norms: by the root mean square of a row, of each head, of all query or key heads together; by mean and
variance of a row."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class Norm:
    """Of rows [..., size]. A weight of higher precision than the rows is applied in its own."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        weight = self._weight
        if x.dtype == weight.dtype:
            return F.rms_norm(x, weight.shape, weight, self._eps)
        return F.rms_norm(x.to(weight.dtype), weight.shape, weight, self._eps).to(x.dtype)


class HeadNorm:
    """Each query and key head by itself: [rows, query heads + key heads, head size]."""

    def __init__(self, query: Tensor, key: Tensor, heads: int, kv_heads: int, eps: float) -> None:
        # One weight for each head, so that queries and keys need a single pass.
        self._weight = torch.cat((query.expand(heads, -1), key.expand(kv_heads, -1)))
        self._eps = eps

    def __call__(self, heads: Tensor) -> Tensor:
        x = heads.to(self._weight.dtype)
        return (F.rms_norm(x, (x.shape[-1],), None, self._eps) * self._weight).to(heads.dtype)


class ProjectionNorm:
    """All query heads of a row as one vector, and all key heads as another."""

    def __init__(self, query: Tensor, key: Tensor, heads: int, eps: float) -> None:
        self._query, self._key = Norm(query, eps), Norm(key, eps)
        self._heads = heads

    def __call__(self, heads: Tensor) -> Tensor:
        query, key = heads[:, : self._heads], heads[:, self._heads :]
        normed = torch.cat((self._query(query.flatten(1)), self._key(key.flatten(1))), dim=1)
        return normed.view(heads.shape)


class LayerNorm:
    """Of rows [..., size], by their mean and variance."""

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        self._weight, self._bias = weight, bias
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self._weight.shape, self._weight, self._bias, self._eps)
