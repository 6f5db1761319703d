"""A decoder in torch, without an engine around it."""

from __future__ import annotations

from pathlib import Path

import torch

from penstock.engine.models.decoder import Decoder
from penstock.engine.models.loader import build_decoder, checked_weights


def load_decoder(
    path: str | Path, device: torch.device, dtype: str, *, generates: bool = True
) -> tuple[Decoder, str]:
    """The decoder, and how its weights were stored."""
    weights = checked_weights(path, generates=generates)
    return build_decoder(weights, device, dtype), weights.quantization
