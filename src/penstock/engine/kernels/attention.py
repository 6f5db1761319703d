"""Paged attention in plain torch, for any device: the reference, and the CPU's path.

Keys and values lie in blocks, [kv heads, blocks, block size, head size] for each layer. A step's
sequences are put into groups that are computed together: every sequence with one new token shares a
group with those of about its length; a prompt chunk is a group of its own.

On the CPU the result for a token must not depend on its company. Three things see to that: at least
four query rows go into each matmul, the softmax runs over whole tiles, and the sum over values is
taken tile by tile, so that its order is fixed by the position alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

TILE = 128  # positions; every block size divides it
MIN_QUERY_ROWS = 4


@dataclass(slots=True)
class KVLayer:
    """The cache of one layer: keys and values, [kv heads, blocks, block size, head size]."""

    keys: Tensor
    values: Tensor


@dataclass(slots=True)
class AttentionGroup:
    """Sequences of equal query count whose padded context is equally long."""

    rows: Tensor  # [sequences * queries] rows of the step's tokens
    blocks: Tensor  # [kv heads * sequences * blocks] rows of a layer's cache seen as one list of blocks
    keys: Tensor  # [kv heads * sequences, context, head size] room for what is gathered, layer after layer
    values: Tensor
    visible: int  # the first so many positions are seen by every query
    hidden: Tensor  # [sequences, queries, context - visible] True where a query may not look
    unseen: Tensor  # [sequences, TILE] of the last tile, True where no query may look
    sequences: int
    queries: int
    context: int  # tokens, padded to whole tiles


def allocate_cache(
    layers: int,
    kv_heads: int,
    blocks: int,
    block_size: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
) -> list[KVLayer]:
    """Zeroed memory; on the CPU the operating system provides pages as blocks are first written."""
    shape = (kv_heads, blocks, block_size, head_dim)
    nbytes = math.prod(shape) * dtype.itemsize

    def zeros() -> Tensor:
        if device.type == "cpu":
            # torch.zeros would touch every page now; numpy asks for zeroed pages and leaves them be.
            return torch.from_numpy(np.zeros(nbytes, dtype=np.uint8)).view(dtype).view(shape)
        return torch.zeros(shape, dtype=dtype, device=device)

    return [KVLayer(zeros(), zeros()) for _ in range(layers)]


def copy_blocks(cache: list[KVLayer], copies: Sequence[tuple[int, int]]) -> None:
    """In order, because a block copied to may be copied from later in the list."""
    for source, target in copies:
        for layer in cache:
            layer.keys[:, target] = layer.keys[:, source]
            layer.values[:, target] = layer.values[:, source]


def write_kv(layer: KVLayer, keys: Tensor, values: Tensor, places: Tensor) -> None:
    """keys, values: [tokens, kv heads, head size]; places: [tokens] = block * block size + offset."""
    layer.keys.flatten(1, 2).index_copy_(1, places, keys.transpose(0, 1))
    layer.values.flatten(1, 2).index_copy_(1, places, values.transpose(0, 1))


def plan_attention(spans: Sequence[tuple[int, int, Sequence[int]]], layer: KVLayer) -> list[AttentionGroup]:
    """Group a step's sequences. Each span is (first position, tokens, block table), in row order.

    `layer` is any layer of the cache; its last block is the scratch block, read where a context is padded.
    """
    kv_heads, num_blocks, block_size, dim = layer.keys.shape
    device = layer.keys.device
    heads = torch.arange(kv_heads)[:, None] * num_blocks
    members: defaultdict[tuple[int, int, int], list[tuple[int, int, Sequence[int]]]] = defaultdict(list)
    row = 0
    for number, (start, count, table) in enumerate(spans):
        tiles = -(-(start + count) // TILE)
        alone = number if count > 1 else -1
        members[count, tiles, alone].append((row, start, table))
        row += count
    groups = []
    for (count, tiles, _), found in members.items():
        context = tiles * TILE
        blocks = torch.full((len(found), context // block_size), num_blocks - 1, dtype=torch.int64)
        for index, (_, start, table) in enumerate(found):
            used = -(-(start + count) // block_size)
            blocks[index, :used] = torch.tensor(table[:used], dtype=torch.int64)
        starts = torch.tensor([start for _, start, _ in found])
        rows = torch.tensor([row for row, _, _ in found])
        queries = torch.arange(count)
        visible = int(starts.min()) // TILE * TILE
        hidden = torch.arange(visible, context) > (starts[:, None] + queries)[:, :, None]
        groups.append(
            AttentionGroup(
                rows=(rows[:, None] + queries).flatten().to(device),
                blocks=(heads + blocks.flatten()).flatten().to(device),
                keys=layer.keys.new_empty((kv_heads * len(found), context, dim)),
                values=layer.keys.new_empty((kv_heads * len(found), context, dim)),
                visible=visible,
                hidden=hidden.to(device),
                unseen=hidden[:, -1, -TILE:].to(device),
                sequences=len(found),
                queries=count,
                context=context,
            )
        )
    return groups


def paged_attention(query: Tensor, layer: KVLayer, groups: Sequence[AttentionGroup]) -> Tensor:
    """query: [tokens, heads, head size], rotated; returns the same shape. Rows in no group give zeros."""
    output = torch.zeros_like(query)
    for group in groups:
        output[group.rows] = _attend(query[group.rows], layer, group)
    return output


def _gathered(cache: Tensor, blocks: Tensor, room: Tensor) -> Tensor:
    """Whole blocks as rows of a flat list: several times faster than a selection inside a dimension."""
    flat = cache.view(cache.shape[0] * cache.shape[1], -1)
    torch.index_select(flat, 0, blocks, out=room.view(blocks.shape[0], flat.shape[1]))
    return room


def _attend(query: Tensor, layer: KVLayer, group: AttentionGroup) -> Tensor:
    _, heads, dim = query.shape
    kv_heads = layer.keys.shape[0]
    shared = heads // kv_heads  # query heads that read one KV head
    n, q, context = group.sequences, group.queries, group.context
    rows = q * shared
    padded = -(-rows // MIN_QUERY_ROWS) * MIN_QUERY_ROWS
    keys, values = (
        _gathered(layer.keys, group.blocks, group.keys),
        _gathered(layer.values, group.blocks, group.values),
    )
    # A weight of zero does not hide a value that is not a number, left there by a former owner.
    values.view(kv_heads, n, context, dim)[:, :, -TILE:].masked_fill_(group.unseen[None, :, :, None], 0.0)
    # [kv heads, sequences, queries * shared heads, head size]
    split = query.view(n, q, kv_heads, shared, dim).permute(2, 0, 1, 3, 4).reshape(kv_heads * n, rows, dim)
    if padded > rows:
        split = torch.nn.functional.pad(split, (0, 0, 0, padded - rows))
    scores = torch.bmm(split, keys.transpose(1, 2)).mul_(dim**-0.5)
    by_query = scores[:, :rows].view(kv_heads, n, q, shared, context)
    by_query[..., group.visible :].masked_fill_(group.hidden[None, :, :, None, :], float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    summed = torch.bmm(weights[:, :, :TILE], values[:, :TILE])
    for start in range(TILE, context, TILE):
        summed += torch.bmm(weights[:, :, start : start + TILE], values[:, start : start + TILE])
    summed = summed[:, :rows].view(kv_heads, n, q, shared, dim)
    return summed.permute(1, 2, 0, 3, 4).reshape(n * q, heads, dim)
