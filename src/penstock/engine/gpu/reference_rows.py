"""What the small kernels of a step compute, in plain torch: same names, same arguments."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.quantized import FP8, FP8_MAX
from penstock.engine.kernels.activation import ACTIVATIONS, Activation
from penstock.engine.layers.rotary import rotate

LEAST_SCALE = 1e-12  # a row of zeros must not be divided by zero

# What a product in eight bits is yet to be multiplied by, in float32: for each row, and for each column.
Factors = tuple[Tensor, Tensor]


def add_norm(
    hidden: Tensor,
    delta: Tensor | None,
    weight: Tensor | None,
    eps: float,
    *,
    post_weight: Tensor | None = None,
    multiplier: float = 1.0,
    factors: Factors | None = None,
    out: Tensor,
    scales: Tensor | None = None,
) -> None:
    if delta is not None:
        added = multiplied(delta.sum(0) if delta.dim() == 3 else delta, factors)
        if post_weight is not None:
            added = F.rms_norm(added, post_weight.shape, post_weight.float(), eps)
        hidden.copy_(hidden.float() + multiplier * added)
    x = hidden.float()
    if weight is not None:
        x = F.rms_norm(x, weight.shape, weight.float(), eps)
    _write(x, out, scales)


def rotate_and_store(
    qkv: Tensor,
    layer: PagedLayer,
    positions: Tensor,
    places: Tensor,
    *,
    heads: int,
    kv_heads: int,
    cos: Tensor | None,
    sin: Tensor | None,
    query_norm: Tensor | None = None,
    key_norm: Tensor | None = None,
    eps: float = 0.0,
    factors: Factors | None = None,
) -> None:
    dim = layer.head_dim
    parts = multiplied(qkv, factors).view(len(qkv), -1, dim)
    query, key, value = parts.split((heads, kv_heads, kv_heads), dim=1)
    if query_norm is not None and key_norm is not None:
        query = F.rms_norm(query, (dim,), query_norm.float(), eps)
        key = F.rms_norm(key, (dim,), key_norm.float(), eps)
    if cos is not None and sin is not None:
        turn = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)
        query, key = rotate(query, *turn), rotate(key, *turn)
    qkv[:, : heads * dim] = query.flatten(1).to(qkv.dtype)
    blocks, offsets = places // layer.block_size, places % layer.block_size
    for x, cache, scales in (
        (key, layer.keys, layer.key_scales),
        (value, layer.values, layer.value_scales),
    ):
        if scales is not None:
            x, scale = quantized(x)
            scales[blocks, :, offsets] = scale
        # As bytes where they are eight bits: not every operation knows those numbers.
        x = x.to(cache.dtype)
        if cache.dtype.itemsize == 1:
            x, cache = x.view(torch.uint8), cache.view(torch.uint8)
        cache[blocks, :, offsets] = x


def activate(
    gate_up: Tensor,
    activation: Activation,
    *,
    factors: Factors | None = None,
    out: Tensor,
    scales: Tensor | None = None,
) -> None:
    gate, up = multiplied(gate_up, factors).chunk(2, dim=-1)
    _write(ACTIVATIONS[activation](gate.clone()) * up, out, scales)


def quantize_rows(x: Tensor, *, out: Tensor, scales: Tensor) -> None:
    _write(x.float(), out, scales)


def gather_inputs(
    tokens_table: Tensor,
    block_table: Tensor,
    slots: Tensor,
    starts: Tensor,
    *,
    block_size: int,
    scratch: int,
    tokens: Tensor,
    positions: Tensor,
    places: Tensor,
    lengths: Tensor,
) -> None:
    used, start, slot = starts >= 0, starts.clamp(min=0).long(), slots.long()
    tokens.copy_(tokens_table[slot, start].clamp(min=0) * used)
    positions.copy_(start)
    place = block_table[slot, start // block_size].long() * block_size + start % block_size
    places.copy_(torch.where(used, place, scratch))
    lengths.copy_(starts.clamp(min=-1) + 1)


def multiplied(x: Tensor, factors: Factors | None) -> Tensor:
    """x in float32, by its factors."""
    if factors is None:
        return x.float()
    rows, columns = factors
    return x.float() * rows[:, None] * columns


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors along the last dimension in eight bits, and what each must be multiplied by."""
    scales = (x.abs().amax(dim=-1) / FP8_MAX).clamp(min=LEAST_SCALE)
    return (x / scales.unsqueeze(-1)).clamp(-FP8_MAX, FP8_MAX).to(FP8), scales


def _write(x: Tensor, out: Tensor, scales: Tensor | None) -> None:
    if scales is None:
        out.copy_(x)
        return
    values, found = quantized(x)
    out.copy_(values)
    scales.copy_(found)
