"""Blocks of the cache are copied as if one after another."""

from __future__ import annotations

import pytest
import torch

from penstock.engine.gpu.cache import PagedLayer, allocate, copy_blocks, vector_bytes

DTYPES = [torch.float32, torch.float8_e4m3fn]


def filled(dtype: torch.dtype, device: torch.device) -> list[PagedLayer]:
    layers = allocate(2, 2, 6, 4, 8, dtype, device)
    for number, layer in enumerate(layers):
        for part in parts(layer):
            part.copy_(torch.arange(part.numel(), device=device).view(part.shape) % 97 + 7 * number)
    return layers


def parts(layer: PagedLayer) -> list[torch.Tensor]:
    every = (layer.keys, layer.values, layer.key_scales, layer.value_scales)
    return [part for part in every if part is not None]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("copies", "found"),
    [
        ([], [0, 1, 2, 3, 4, 5]),
        ([(0, 3)], [0, 1, 2, 0, 4, 5]),
        ([(0, 3), (0, 4), (2, 5)], [0, 1, 2, 0, 0, 2]),
        ([(0, 3), (3, 4), (2, 5)], [0, 1, 2, 0, 0, 2]),
        ([(3, 4), (0, 3)], [0, 1, 2, 0, 3, 5]),
        ([(0, 3), (1, 3)], [0, 1, 2, 1, 4, 5]),
    ],
    ids=["none", "one", "apart", "from a copy", "to a source", "twice to one"],
)
def test_blocks_are_copied_as_if_in_order(
    copies: list[tuple[int, int]], found: list[int], dtype: torch.dtype, device: torch.device
) -> None:
    cache, before = filled(dtype, device), filled(dtype, device)
    copy_blocks(cache, copies)
    for layer, old in zip(cache, before, strict=True):
        assert len(parts(layer)) == (2 if dtype == torch.float32 else 4)
        for part, original in zip(parts(layer), parts(old), strict=True):
            assert torch.equal(part.float(), original.float()[found])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=["sixteen bits", "eight bits"])
def test_a_vector_takes_what_is_allocated_for_it(dtype: torch.dtype) -> None:
    (layer,) = allocate(1, 2, 3, 16, 64, dtype, torch.device("cpu"))
    parts = (layer.keys, layer.values, layer.key_scales, layer.value_scales)
    taken = sum(part.nbytes for part in parts if part is not None)
    assert taken == 2 * 2 * 3 * 16 * vector_bytes(64, dtype)
