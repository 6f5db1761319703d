"""A mixture of experts: every row goes through the few gated MLPs that a router chooses for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.engine.kernels.linear import CPU_MIN_ROWS, Linear
from penstock.engine.layers.mlp import GatedMLP


class Experts:
    """Rows that chose the same expert are computed together.

    A row's result does not depend on the others: each expert gets as many rows as a matmul on the CPU
    needs at least, and a row's experts are added up in the order of their numbers.
    """

    def __init__(
        self, router: Linear, experts: Sequence[GatedMLP], per_token: int, *, normalized: bool
    ) -> None:
        """`normalized`: the shares of the chosen experts are made to add up to one."""
        self._router = router
        self._experts = experts
        self._per_token = per_token
        self._normalized = normalized

    @property
    def nbytes(self) -> int:
        """All experts; a step reads the router and the experts that at least one of its rows chose."""
        return self._router.nbytes + sum(expert.nbytes for expert in self._experts)

    def __call__(self, x: Tensor) -> Tensor:
        shares, chosen = torch.softmax(self._router(x).float(), dim=-1).topk(self._per_token, dim=-1)
        if self._normalized:
            shares = shares / shares.sum(dim=-1, keepdim=True)
        shares = shares.flatten()
        # All (row, expert) pairs in order of expert, then of row.
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=len(self._experts)).tolist()
        output = torch.zeros_like(x, dtype=torch.float32)
        for expert, pairs in zip(self._experts, order.split(counts), strict=True):
            count = pairs.shape[0]
            if not count:
                continue
            rows = pairs // self._per_token
            lacking = CPU_MIN_ROWS - count
            taken = rows if lacking <= 0 else torch.cat((rows, rows[:1].expand(lacking)))
            output.index_add_(0, rows, expert(x[taken])[:count] * shares[pairs].unsqueeze(1))
        return output.to(x.dtype)
