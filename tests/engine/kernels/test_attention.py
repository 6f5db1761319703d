"""Paged attention against attention written down plainly, one sequence at a time."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from penstock.engine.kernels.attention import TILE, KVLayer, allocate_cache, paged_attention, plan_attention

HEADS, KV_HEADS, DIM, BLOCK = 4, 2, 8, 16
CPU = torch.device("cpu")


def plain(
    query: Tensor, keys: Tensor, values: Tensor, start: int, window: int | None, cap: float | None
) -> Tensor:
    """query: [tokens, heads, dim] from position `start` on; keys, values: [positions, kv heads, dim]."""
    keys, values = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query, keys) * 0.3
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    own = torch.arange(start, start + query.shape[0])[:, None]
    positions = torch.arange(keys.shape[0])
    hidden = (positions > own) | (positions <= own - (window or 10**9))
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), values)


class Sequences:
    """Sequences of random keys and values in scattered blocks of a cache full of what is not a number."""

    def __init__(self, lengths: list[int]) -> None:
        random_values = torch.Generator().manual_seed(3)
        blocks = [-(-length // BLOCK) for length in lengths]
        free = list(range(sum(blocks)))
        random.Random(1).shuffle(free)
        (self.layer,) = allocate_cache(1, KV_HEADS, sum(blocks) + 1, BLOCK, DIM, torch.float32, CPU)
        self.layer.keys.fill_(torch.nan)
        self.layer.values.fill_(torch.nan)
        self.tables = [[free.pop() for _ in range(count)] for count in blocks]
        self.keys, self.values = (
            [torch.randn(length, KV_HEADS, DIM, generator=random_values) for length in lengths]
            for _ in range(2)
        )
        for number, table in enumerate(self.tables):
            for index, block in enumerate(table):
                part = slice(index * BLOCK, (index + 1) * BLOCK)
                keys, values = self.keys[number][part], self.values[number][part]
                self.layer.keys[:, block, : len(keys)] = keys.transpose(0, 1)
                self.layer.values[:, block, : len(values)] = values.transpose(0, 1)


@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("window", [None, 1, 24, TILE, TILE + 1, 1000])
def test_every_window_sees_what_it_should(window: int | None, cap: float | None) -> None:
    """Single tokens and chunks, before, at and beyond the window and the borders of tiles."""
    ends = [(1, 1), (16, 1), (24, 1), (25, 1), (TILE, 1), (TILE + 1, 1), (300, 1), (301, 1), (300, 140),
            (TILE, TILE), (2 * TILE + 24, 40), (60, 60), (2 * TILE, 2)]  # fmt: skip
    made = Sequences([end for end, _ in ends])
    spans = [(end - count, count, table) for (end, count), table in zip(ends, made.tables, strict=True)]
    query = torch.randn(
        sum(count for _, count in ends), HEADS, DIM, generator=torch.Generator().manual_seed(4)
    )
    groups = plan_attention(spans, made.layer, [window])[window]
    found = paged_attention(query, made.layer, groups, 0.3, cap).split([count for _, count in ends])
    row = 0
    for (end, count), got, keys, values in zip(ends, found, made.keys, made.values, strict=True):
        wanted = plain(query[row : row + count], keys, values, end - count, window, cap)
        assert (got - wanted).abs().max() < 1e-5, (end, count)
        row += count


def layer() -> KVLayer:
    return allocate_cache(1, KV_HEADS, 4, BLOCK, DIM, torch.float32, CPU)[0]


@pytest.mark.parametrize(
    ("start", "count", "window", "tiles"),
    [
        (10 * TILE, 1, 24, 2),
        (10 * TILE + 30, 1, 24, 1),
        (10 * TILE + 30, 1, TILE, 2),
        (10 * TILE - 1, 1, TILE, 1),
        (10 * TILE, TILE, 24, 2),
        (10 * TILE, 1, None, 11),
    ],
)
def test_tiles_before_the_window_are_not_gathered(
    start: int, count: int, window: int | None, tiles: int
) -> None:
    (group,) = plan_attention([(start, count, [0] * 100)], layer(), [window])[window]
    assert group.context == tiles * TILE
    assert group.keys.shape[1] == tiles * TILE


def test_a_window_that_nobody_has_outgrown_needs_no_plan_of_its_own() -> None:
    spans = [(0, 40, [0, 1, 2]), (50, 1, [0, 1, 2, 3])]
    plans = plan_attention(spans, layer(), [None, 51, 50])
    assert plans[51] is plans[None]
    assert plans[50] is not plans[None]
