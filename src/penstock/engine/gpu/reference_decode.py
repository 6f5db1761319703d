"""What the kernels of attention of one query a sequence must compute, in plain torch and float32."""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.engine.gpu.batch import DecodeBatch
from penstock.engine.gpu.cache import PagedLayer


def gather_cached(layer: PagedLayer, table: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Keys and values (length, kv heads, dim) of a sequence in float32, from its row of the tables."""
    blocks = table[: -(-length // layer.block_size)].long()

    def gather(part: Tensor, scales: Tensor | None) -> Tensor:
        vectors = part[blocks].float()
        if scales is not None:
            vectors = vectors * scales[blocks].unsqueeze(-1)
        return vectors.transpose(1, 2).flatten(0, 1)[:length]

    return gather(layer.keys, layer.key_scales), gather(layer.values, layer.value_scales)


def attend_decodes(
    query: Tensor,
    layer: PagedLayer,
    batch: DecodeBatch,
    *,
    scale: float,
    softcap: float | None = None,
    window: int | None = None,
) -> Tensor:
    """Attention of query [sequences, heads, dim] as [sequences, heads * dim] in float32.

    What sequences share is in their own tables too, so it need not be known here.
    """
    sequences, heads, dim = query.shape
    group = heads // layer.kv_heads
    out = torch.zeros(sequences, heads, dim, dtype=torch.float32, device=query.device)
    for index, (slot, length) in enumerate(zip(batch.slots.tolist(), batch.lengths.tolist(), strict=True)):
        if length == 0:
            continue
        keys, values = gather_cached(layer, batch.tables[slot], length)
        first = 0 if window is None else max(0, length - window)
        rows = query[index].float().view(layer.kv_heads, group, dim)
        scores = torch.einsum("hgd,thd->hgt", rows, keys[first:]) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        out[index] = torch.einsum("hgt,thd->hgd", scores.softmax(-1), values[first:]).reshape(heads, dim)
    return out.flatten(1)
