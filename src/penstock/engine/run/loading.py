"""The right computation for a model: in small integers where the CPU can, else in floating point."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from penstock.engine.models.loader import build_decoder, checked_weights
from penstock.engine.native.loading import load_native, why_not
from penstock.engine.run.sizing import set_threads
from penstock.engine.run.step import StepModel
from penstock.engine.run.torch_model import TorchModel
from penstock.errors import ConfigError
from penstock.machine import usable_cpus

logger = logging.getLogger("penstock.engine")


def load_model(
    path: str | Path,
    device: torch.device,
    precision: str,
    *,
    generates: bool = True,
    threads: int | None = None,
    load_format: str = "auto",
) -> tuple[StepModel, str]:
    """The model, and how its weights were stored. `generates`: without an output matrix it is no use."""
    random_on = device if load_format == "random" else None
    weights = checked_weights(path, generates=generates, random_on=random_on)
    if random_on is not None:
        logger.warning(
            "The weights of %s are random: it can be measured, but its answers mean nothing.", path
        )
    reason = why_not(weights.config, device)
    if precision == "int8" and reason is not None:
        raise ConfigError(f"precision is int8, but {reason}. Ask for auto or float32.")
    if precision in ("auto", "int8") and reason is None:
        return load_native(weights, threads or usable_cpus()), weights.quantization
    if precision == "auto" and device.type == "cpu":
        logger.warning("The model is computed in float32, which is slower than int8: %s.", reason)
    set_threads(threads)
    return TorchModel(build_decoder(weights, device, precision)), weights.quantization
