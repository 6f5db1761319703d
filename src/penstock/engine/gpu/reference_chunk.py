"""What the attention of prompt chunks must compute, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.engine.gpu.batch import ChunkBatch
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.reference_decode import gather_cached


def attend_chunks(
    query: Tensor,
    layer: PagedLayer,
    batch: ChunkBatch,
    *,
    scale: float,
    softcap: float | None = None,
    window: int | None = None,
    out: Tensor,
) -> None:
    """One sequence after another, in float32."""
    heads, head_dim = query.shape[1], query.shape[2]
    for slot, start, count, row in zip(
        batch.slots.tolist(), batch.starts.tolist(), batch.counts.tolist(), batch.rows.tolist(), strict=True
    ):
        length = start + count
        group = heads // layer.kv_heads
        keys, values = (
            part.transpose(0, 1).repeat_interleave(group, 0)
            for part in gather_cached(layer, batch.tables[slot], length)
        )
        scores = query[row : row + count].float().transpose(0, 1) @ keys.transpose(1, 2) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        own = torch.arange(start, length, device=query.device)[:, None]
        at = torch.arange(length, device=query.device)[None, :]
        hidden = at > own
        if window is not None:
            hidden |= at <= own - window
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        attended = (weights @ values).transpose(0, 1).reshape(count, heads * head_dim)
        out[row : row + count] = attended.to(out.dtype)
