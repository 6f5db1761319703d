"""Attention of prompt chunks, against the plain form in reference_chunk.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from penstock.engine.gpu import reference_chunk
from penstock.engine.gpu.batch import ChunkBatch
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.kernels.chunk_attention import (
    CHUNK_TILE,
    attend_chunks,
    choose_shape,
    chunk_tiles,
)
from penstock.engine.gpu.kernels.chunk_widen import widen
from penstock.engine.gpu.kernels.numbers import HIDDEN, LOG2E

NAN = float("nan")
SPANS = ((0, 37), (70, 50), (0, 5), (33, 1))  # position of the first query, queries
LONG_SPANS = ((0, 700), (333, 500), (2048, 64), (0, 5), (33, 1))
TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 3e-2}


def step(
    spans: tuple[tuple[int, int], ...],
    heads: int,
    kv_heads: int,
    head_dim: int,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
    scaled: bool = False,
) -> tuple[Tensor, PagedLayer, ChunkBatch]:
    """A step of chunks between rows of others, over a cache that holds no numbers behind each length."""
    draw = torch.Generator().manual_seed(len(spans) * head_dim + block_size)
    blocks = [-(-(start + count) // block_size) for start, count in spans]
    shape = (sum(blocks) + 2, kv_heads, block_size, head_dim)
    keys, values = torch.randn(shape, generator=draw), torch.randn(shape, generator=draw)
    order = torch.randperm(shape[0], generator=draw).int()
    slots = torch.randperm(len(spans) + 2, generator=draw)[: len(spans)].int()
    tables = torch.full((len(spans) + 2, max(blocks) + 1), -7, dtype=torch.int32)
    for slot, own, (start, count) in zip(slots, order.split([*blocks, 2]), spans, strict=False):
        tables[slot, : len(own)] = own
        filled = (start + count - 1) % block_size + 1
        keys[own[-1], :, filled:] = NAN
        values[own[-1], :, filled:] = NAN
    key_scales = value_scales = None
    if scaled:
        key_scales, value_scales = keys.abs().amax(-1) / 448, values.abs().amax(-1) / 448
        keys, values = keys / key_scales[..., None], values / value_scales[..., None]
    stored = torch.float8_e4m3fn if scaled else dtype
    counts = torch.tensor([count for _, count in spans], dtype=torch.int32)
    starts = torch.tensor([start for start, _ in spans], dtype=torch.int32)
    rows = (counts.cumsum(0) - counts + 3).int()
    tiles = torch.tensor(chunk_tiles(starts.tolist(), counts.tolist()), dtype=torch.int32)
    total = int(counts.sum()) + 5
    qkv = torch.randn((total, (heads + 2 * kv_heads) * head_dim), generator=draw).to(dtype).to(device)
    layer = PagedLayer(
        keys.to(stored).to(device),
        values.to(stored).to(device),
        None if key_scales is None else key_scales.to(device),
        None if value_scales is None else value_scales.to(device),
    )
    parts = (part.to(device) for part in (slots, starts, counts, rows, tiles, tables))
    batch = ChunkBatch(*parts, seen=int((starts + counts).sum()))
    return qkv[:, : heads * head_dim].view(total, heads, head_dim), layer, batch


def check(
    query: Tensor,
    layer: PagedLayer,
    batch: ChunkBatch,
    softcap: float | None = None,
    window: int | None = None,
) -> None:
    scale = query.shape[2] ** -0.5
    expected = torch.full((query.shape[0], query.shape[1] * query.shape[2]), NAN).to(query)
    out = expected.clone()
    reference_chunk.attend_chunks(
        query, layer, batch, scale=scale, softcap=softcap, window=window, out=expected
    )
    attend_chunks(query, layer, batch, scale=scale, softcap=softcap, window=window, out=out)
    # Rows of other sequences are not touched: not a number before, not a number after.
    tolerance = TOLERANCE[query.dtype]
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "block_size"),
    [(6, 2, 64, 16), (4, 1, 80, 32), (2, 2, 96, 64), (2, 1, 128, 128), (2, 1, 256, 16)],
)
def test_chunks_see_what_came_before_them_and_themselves(
    device: torch.device, heads: int, kv_heads: int, head_dim: int, block_size: int
) -> None:
    check(*step(SPANS, heads, kv_heads, head_dim, block_size, torch.float32, device))


def test_a_chunk_longer_than_a_tile_is_whole(device: torch.device) -> None:
    check(*step(((20, CHUNK_TILE + 10),), 2, 1, 64, 16, torch.float32, device))


@pytest.mark.parametrize("window", [1, 20, 1000])
def test_a_window_hides_what_is_further_back(device: torch.device, window: int) -> None:
    check(*step(((0, 37), (110, 40)), 2, 1, 64, 16, torch.float32, device), window=window)


def test_a_soft_cap_bounds_the_scores(device: torch.device) -> None:
    check(*step(SPANS, 2, 1, 64, 16, torch.float32, device), softcap=0.5, window=30)


@pytest.mark.parametrize("head_dim", [64, 80])
def test_tiles_may_come_through_the_copy_engine(device: torch.device, head_dim: int) -> None:
    query, layer, batch = step(SPANS, 4, 2, head_dim, 64, torch.float16, device)
    assert choose_shape(query, layer).bulk
    check(query, layer, batch)


def test_keys_and_values_in_eight_bits_are_scaled(device: torch.device) -> None:
    check(*step(SPANS, 4, 2, 64, 16, torch.float16, device, scaled=True))


def test_a_cache_in_eight_bits_can_be_widened_to_sixteen(device: torch.device) -> None:
    query, layer, batch = step(
        ((0, 37), (70, 50), (33, 1), (15, 1)), 4, 2, 80, 16, torch.float16, device, True
    )
    widened = widen(layer, batch, torch.float16)
    attended, expected = torch.zeros((2, query.shape[0], 320), dtype=torch.float16, device=device)
    reference_chunk.attend_chunks(query, *widened, scale=0.1, out=attended)
    reference_chunk.attend_chunks(query, layer, batch, scale=0.1, out=expected)
    torch.testing.assert_close(attended, expected, rtol=3e-3, atol=3e-3)


def test_tiles_that_see_most_come_first() -> None:
    assert chunk_tiles([0, 500], [2 * CHUNK_TILE + 1, 3]) == [
        (1, 0),
        (0, 2 * CHUNK_TILE),
        (0, CHUNK_TILE),
        (0, 0),
    ]


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_the_score_of_what_is_hidden_times_any_scale_is_exact(head_dim: int) -> None:
    scale = torch.tensor(head_dim**-0.5) * LOG2E.value
    assert float(HIDDEN.value * scale) == HIDDEN.value * float(scale)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("heads", "head_dim", "block_size", "dtype"),
    [
        (8, 64, 16, torch.float16),
        (6, 80, 64, torch.bfloat16),
        (8, 96, 128, torch.bfloat16),
        (8, 128, 64, torch.bfloat16),
        (8, 256, 32, torch.bfloat16),
    ],
)
def test_every_size_on_a_gpu(
    device: torch.device, heads: int, head_dim: int, block_size: int, dtype: torch.dtype
) -> None:
    check(*step(LONG_SPANS, heads, 2, head_dim, block_size, dtype, device))


@pytest.mark.gpu
def test_a_window_and_a_soft_cap_on_a_gpu(device: torch.device) -> None:
    check(*step(LONG_SPANS, 8, 2, 128, 64, torch.bfloat16, device), softcap=3.0, window=100)


@pytest.mark.gpu
def test_eight_bits_on_a_gpu(device: torch.device) -> None:
    check(*step(LONG_SPANS, 8, 2, 128, 64, torch.bfloat16, device, scaled=True))
