"""Rotary embedding: what is decided by the longest sequence, and what stays as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from penstock.engine.layers.rotary import Rope, Rotary, frequencies, rotate

PLAIN = Rope(dim=8, theta=10000.0)
DYNAMIC = replace(PLAIN, kind="dynamic", factor=4.0, original_context=64)
LONG = replace(
    PLAIN, kind="longrope", original_context=64, short_factors=(1.0,) * 4, long_factors=(1.0, 2.0, 4.0, 8.0)
)


@pytest.mark.parametrize("rope", [DYNAMIC, LONG])
def test_the_longest_sequence_decides_for_every_position(rope: Rope) -> None:
    """Not the sequence at hand: keys in the cache are rotated once."""
    assert torch.equal(frequencies(rope, 64), frequencies(PLAIN, 64))
    assert not torch.equal(frequencies(rope, 65), frequencies(PLAIN, 65))
    tables = []
    for positions in (64, 256):
        rotary = Rotary(rope, torch.device("cpu"))
        rotary.prepare(positions)
        tables.append(rotary.at(torch.arange(1, 64), torch.float32)[0])
    assert not torch.equal(*tables)


def test_a_dynamic_rope_stretches_the_further_the_longer_the_context() -> None:
    slowest = [float(frequencies(DYNAMIC, positions)[-1]) for positions in (64, 65, 128, 256)]
    assert slowest == sorted(slowest, reverse=True)
    assert len(set(slowest)) == 4


def test_dimensions_beyond_the_rotated_ones_stay_as_they_are() -> None:
    rotary = Rotary(PLAIN, torch.device("cpu"))
    rotary.prepare(10)
    x = torch.randn(10, 3, 12, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, *rotary.at(torch.arange(10), torch.float32))
    assert torch.equal(turned[..., 8:], x[..., 8:])
    assert torch.equal(turned[0], x[0])
    assert not torch.equal(turned[1:, :, :8], x[1:, :, :8])
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1))


def test_yarn_keeps_fast_frequencies_and_stretches_slow_ones() -> None:
    yarn = replace(PLAIN, dim=64, kind="yarn", factor=4.0, original_context=4096)
    ratio = frequencies(replace(PLAIN, dim=64), 1) / frequencies(yarn, 1)
    assert ratio[0] == 1.0
    assert ratio[-1] == pytest.approx(4.0)
    assert torch.equal(ratio, ratio.sort().values)
