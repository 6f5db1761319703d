"""Kernels that a rehearsal notes are compiled together, and launched only afterwards."""

from __future__ import annotations

import pytest
import torch

from penstock.engine.gpu.kernels.compiling import rehearsal
from penstock.engine.gpu.kernels.norm import _add_norm, add_norm


@pytest.mark.gpu
def test_a_rehearsal_launches_nothing_and_compiles_what_it_calls(device: torch.device) -> None:
    hidden = torch.ones(3, 48, device=device)
    weight = torch.full((48,), 2.0, device=device)
    out = torch.zeros_like(hidden)
    _add_norm.device_caches.clear()
    with rehearsal(device):
        add_norm(hidden, None, weight, 0.0, out=out)
        assert not out.any()
    compiled = len(_add_norm.device_caches[device.index or 0][0])
    assert compiled == 1
    add_norm(hidden, None, weight, 0.0, out=out)
    torch.testing.assert_close(out, torch.full_like(out, 2.0))
    assert len(_add_norm.device_caches[device.index or 0][0]) == compiled
    out.zero_()
    with rehearsal(device):  # nor is what was compiled before
        add_norm(hidden, None, weight, 0.0, out=out)
    assert not out.any()


@pytest.mark.skipif(torch.cuda.is_available(), reason="Kernels are compiled here.")
def test_what_is_interpreted_needs_no_rehearsal(device: torch.device) -> None:
    """The same code serves both."""
    out = torch.zeros(1, 48, device=device)
    for _ in range(2):
        with rehearsal(device):
            add_norm(torch.ones_like(out), None, None, 0.0, out=out)
    torch.testing.assert_close(out, torch.ones_like(out))
