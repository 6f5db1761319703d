"""What the attention of prompt chunks must compute, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.engine.gpu.batch import ChunkBatch
from penstock.engine.gpu.cache import PagedLayer


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
        keys = _gather(layer.keys, layer.key_scales, batch.tables[slot], length)
        values = _gather(layer.values, layer.value_scales, batch.tables[slot], length)
        group = heads // layer.kv_heads
        keys, values = keys.repeat_interleave(group, 0), values.repeat_interleave(group, 0)
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


def _gather(cache: Tensor, scales: Tensor | None, table: Tensor, length: int) -> Tensor:
    """[kv heads, length, head size] of one sequence."""
    blocks = table[: -(-length // cache.shape[2])].long()
    vectors = cache[blocks].float()
    if scales is not None:
        vectors = vectors * scales[blocks][..., None]
    return vectors.transpose(0, 1).flatten(1, 2)[:, :length]
