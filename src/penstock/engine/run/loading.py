"""The right computation for a model: in small integers where the CPU can, else in floating point."""

from __future__ import annotations

import logging
from importlib.util import find_spec

import torch

from penstock.engine.config import EngineConfig
from penstock.engine.models.loader import build_decoder, checked_weights
from penstock.engine.models.tensors import choose_dtype
from penstock.engine.models.weights import Weights
from penstock.engine.native.loading import load_native, why_not
from penstock.engine.run.sizing import set_threads
from penstock.engine.run.step import StepModel
from penstock.engine.run.torch_model import TorchModel
from penstock.errors import ConfigError
from penstock.machine import usable_cpus

logger = logging.getLogger("penstock.engine")


def load_model(
    config: EngineConfig, device: torch.device, *, generates: bool = True
) -> tuple[StepModel, str]:
    """The model, and how its weights were stored. `generates`: without an output matrix it is no use."""
    random_on = device if config.load_format == "random" else None
    weights = checked_weights(config.model, generates=generates, random_on=random_on)
    if random_on is not None:
        logger.warning(
            "The weights of %s are random: it can be measured, but its answers mean nothing.", config.model
        )
    if device.type == "cuda":
        return _on_gpu(config, weights, device), weights.quantization
    _say_unheeded(config)
    precision = config.precision
    reason = why_not(weights.config, device)
    if precision == "int8" and reason is not None:
        raise ConfigError(f"precision is int8, but {reason}. Ask for auto or float32.")
    if precision in ("auto", "int8") and reason is None:
        return load_native(weights, config.threads or usable_cpus()), weights.quantization
    if precision == "auto":
        logger.warning("The model is computed in float32, which is slower than int8: %s.", reason)
    set_threads(config.threads)
    return TorchModel(build_decoder(weights, device, precision)), weights.quantization


def _on_gpu(config: EngineConfig, weights: Weights, device: torch.device) -> StepModel:
    set_threads(config.threads)
    reason = _why_no_kernels(weights, device)
    eight_bits = [name for name in ("precision", "kv_precision") if getattr(config, name) == "fp8"]
    if reason is not None:
        if eight_bits:
            raise ConfigError(f"{eight_bits[0]} is fp8, but {reason}. Ask for auto.")
        logger.warning("The model is computed without the GPU's own kernels, which is slower: %s.", reason)
        _say_unheeded(config)
        return TorchModel(build_decoder(weights, device, config.precision))
    if eight_bits and torch.cuda.get_device_capability(device) < (8, 9):
        name = torch.cuda.get_device_name(device)
        raise ConfigError(f"{eight_bits[0]} is fp8, but {name} computes no eight-bit floats. Ask for auto.")
    # Only where there is a GPU: it imports triton.
    from penstock.engine.gpu.loading import load_gpu

    fp8 = config.precision == "fp8"
    return load_gpu(
        weights,
        device,
        torch.bfloat16 if fp8 else choose_dtype(config.precision, weights.dtype, device),
        fp8=fp8,
        kv_fp8=config.kv_precision == "fp8",
        without=config.without,
    )


def _say_unheeded(config: EngineConfig) -> None:
    if config.without:
        logger.warning(
            "without (%s) changes nothing here: it is about the GPU's own kernels, which are not used.",
            ", ".join(config.without),
        )


def _why_no_kernels(weights: Weights, device: torch.device) -> str | None:
    """Why this model cannot be computed with our kernels there; None if it can."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return f"{torch.cuda.get_device_name(device)} is older than they are for"
    if weights.config.experts is not None:
        return "mixtures of experts are computed without them"
    return None
