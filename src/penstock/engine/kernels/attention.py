"""Paged attention in plain torch, for any device: the reference, and the CPU's path.

Keys and values lie in blocks, [kv heads, blocks, block size, head size] for each layer. A step's
sequences are put into groups that are computed together: every sequence with one new token shares a
group with those of about its length; a prompt chunk is a group of its own. Where a layer sees only a
window of the last positions, tiles that lie wholly before it are not gathered.

On the CPU the result for a token must not depend on its company. Three things see to that: at least
four query rows go into each matmul, the softmax runs over whole tiles, and the sum over values is
taken tile by tile, so that its order is fixed by the position alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
    """Sequences of equal query count of which equally many tiles are seen."""

    rows: Tensor  # [sequences * queries] rows of the step's tokens
    blocks: Tensor  # [kv heads * sequences * blocks] rows of a layer's cache seen as one list of blocks
    keys: Tensor  # [kv heads * sequences, context, head size] room for what is gathered, layer after layer
    values: Tensor
    visible: int  # the first so many positions are seen by every query
    hidden: Tensor  # [sequences, queries, context - visible] True where a query may not look
    unseen: Tensor  # [sequences, TILE] of the last tile, True where no query may look
    sequences: int
    queries: int
    context: int  # positions from the first tile that is seen to the end of the last one


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


Span = tuple[int, int, Sequence[int]]  # first position, tokens, block table


def plan_attention(
    spans: Sequence[Span], layer: KVLayer, windows: Iterable[int | None] = (None,)
) -> dict[int | None, list[AttentionGroup]]:
    """Group a step's sequences, given in row order, once for each window that layers have.

    A window is how many positions a token sees, its own included; None is all. `layer` is any layer of
    the cache; its last block is the scratch block, read where a context is padded.
    """
    longest = max(start + count for start, count, _ in spans)
    plans: dict[int | None, list[AttentionGroup]] = {}
    for window in windows:
        # A window that nobody has outgrown hides nothing.
        effective = window if window is not None and window < longest else None
        if effective not in plans:
            plans[effective] = _plan(spans, layer, effective)
        plans[window] = plans[effective]
    return plans


def _plan(spans: Sequence[Span], layer: KVLayer, window: int | None) -> list[AttentionGroup]:
    kv_heads, num_blocks, block_size, dim = layer.keys.shape
    device = layer.keys.device
    heads = torch.arange(kv_heads)[:, None] * num_blocks
    # (row, first position, first position that is gathered, block table)
    members: defaultdict[tuple[int, int, int], list[tuple[int, int, int, Sequence[int]]]] = defaultdict(list)
    row = 0
    for number, (start, count, table) in enumerate(spans):
        first = 0 if window is None else max(0, start - window + 1) // TILE * TILE
        tiles = -(-(start + count - first) // TILE)
        alone = number if count > 1 else -1
        members[count, tiles, alone].append((row, start, first, table))
        row += count
    groups = []
    for (count, tiles, _), found in members.items():
        context = tiles * TILE
        blocks = torch.full((len(found), context // block_size), num_blocks - 1, dtype=torch.int64)
        for index, (_, start, first, table) in enumerate(found):
            used = table[first // block_size : -(-(start + count) // block_size)]
            blocks[index, : len(used)] = torch.tensor(used, dtype=torch.int64)
        rows = torch.tensor([row for row, *_ in found])
        queries = torch.arange(count)
        # Counted from the first position that is gathered.
        starts = torch.tensor([start - first for _, start, first, _ in found])
        visible = int(starts.min()) // TILE * TILE if window is None else 0
        positions, own = torch.arange(visible, context), (starts[:, None] + queries)[:, :, None]
        hidden = positions > own
        if window is not None:
            hidden |= positions <= own - window
        groups.append(
            AttentionGroup(
                rows=(rows[:, None] + queries).flatten().to(device),
                blocks=(heads + blocks.flatten()).flatten().to(device),
                keys=layer.keys.new_empty((kv_heads * len(found), context, dim)),
                values=layer.keys.new_empty((kv_heads * len(found), context, dim)),
                visible=visible,
                hidden=hidden.to(device),
                unseen=(positions[-TILE:] > own[:, -1]).to(device),
                sequences=len(found),
                queries=count,
                context=context,
            )
        )
    return groups


def paged_attention(
    query: Tensor,
    layer: KVLayer,
    groups: Sequence[AttentionGroup],
    scale: float,
    softcap: float | None = None,
) -> Tensor:
    """query: [tokens, heads, head size], rotated; returns the same shape. Rows in no group give zeros.

    Scores are multiplied by `scale`, and bent so that they stay between -`softcap` and `softcap`.
    """
    output = torch.zeros_like(query)
    for group in groups:
        output[group.rows] = _attend(query[group.rows], layer, group, scale, softcap)
    return output


def _gathered(cache: Tensor, blocks: Tensor, room: Tensor) -> Tensor:
    """Whole blocks as rows of a flat list: several times faster than a selection inside a dimension."""
    flat = cache.view(cache.shape[0] * cache.shape[1], -1)
    torch.index_select(flat, 0, blocks, out=room.view(blocks.shape[0], flat.shape[1]))
    return room


def _attend(
    query: Tensor, layer: KVLayer, group: AttentionGroup, scale: float, softcap: float | None
) -> Tensor:
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
    scores = torch.bmm(split, keys.transpose(1, 2)).mul_(scale)
    if softcap is not None:
        scores.div_(softcap).tanh_().mul_(softcap)
    by_query = scores[:, :rows].view(kv_heads, n, q, shared, context)
    by_query[..., group.visible :].masked_fill_(group.hidden[None, :, :, None, :], float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    summed = torch.bmm(weights[:, :, :TILE], values[:, :TILE])
    for start in range(TILE, context, TILE):
        summed += torch.bmm(weights[:, :, start : start + TILE], values[:, start : start + TILE])
    summed = summed[:, :rows].view(kv_heads, n, q, shared, dim)
    return summed.permute(1, 2, 0, 3, 4).reshape(n * q, heads, dim)
