"""The scales of products in eight bits reach the layers of a decoder, whoever multiplies by them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from penstock.engine.gpu import linear
from penstock.engine.gpu.cache import PagedLayer, allocate
from penstock.engine.gpu.decoder import RowInputs
from penstock.engine.gpu.loading import load_gpu
from penstock.engine.models.weights import open_weights
from tests.engine.models.families import TYPICAL, make

SMALL = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 64}
ROWS = 3


def attend_itself(query: Tensor, cache: PagedLayer, window: int | None, out: Tensor) -> None:
    """Queries and values of the row itself, so that both count."""
    values = cache.values[0, :, :ROWS].transpose(0, 1).repeat_interleave(2, dim=1)
    out.copy_((query.float() + values.float()).flatten(1))


def hidden_states(path: Path, device: torch.device, *, fp8: bool) -> Tensor:
    model = load_gpu(
        open_weights(path), device, torch.float32, fp8=fp8, kv_fp8=False, without=("skinny", "graphs")
    )
    decoder = model._decoder
    config = decoder.config
    decoder.prepare(ROWS)
    rows = torch.arange(ROWS, device=device)
    cache = allocate(len(decoder.layers), config.num_kv_heads, 1, 16, config.head_dim, torch.float32, device)
    with torch.inference_mode():
        return decoder.forward(RowInputs(rows + 5, rows, rows), cache, attend_itself).float()


# Norms before, around and after; norms of projections; biases, whose products keep their scales.
@pytest.mark.parametrize("family", ["llama", "gemma2", "olmo2", "qwen2"])
def test_a_decoder_in_eight_bits_is_near_one_in_thirty_two(
    family: str, device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(family, TYPICAL[family], tmp_path, **SMALL)
    expected = hidden_states(tmp_path, device, fp8=False)
    for unscaled_rows in (ROWS, 0):
        monkeypatch.setattr(linear, "_UNSCALED_ROWS", unscaled_rows)
        error = hidden_states(tmp_path, device, fp8=True) - expected
        assert error.norm() < 0.2 * expected.norm()
