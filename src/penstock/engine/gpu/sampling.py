"""Draws on a GPU, for steps whose logits are changed before they are drawn from, or asked about."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from penstock.engine.gpu.kernels.sampling import draw
from penstock.engine.layers.sampler import Logprobs, SamplingBatch, TorchDrawer
from penstock.engine.transfer import upload


class GpuDrawer:
    """What it draws is what `TorchDrawer` does, ties of rounding apart."""

    def __init__(self) -> None:
        self._torch = TorchDrawer()

    def draw(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        rows = np.array((batch.slots, batch.positions), dtype=np.int32)
        slots, positions = upload(rows, logits.device)
        tokens = torch.empty(len(batch.slots), dtype=torch.int64, device=logits.device)
        filtered = not batch.parameters.filtered.isdisjoint(batch.slots)
        draw(logits, batch.parameters, slots, positions, filtered=filtered, out=tokens)
        return tokens

    def logprobs(self, logits: Tensor, tokens: Tensor, num_top: int) -> Logprobs:
        return self._torch.logprobs(logits, tokens, num_top)
