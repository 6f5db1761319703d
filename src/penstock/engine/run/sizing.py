"""How large everything is: decided once, after the weights are in, from the options and the device."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from penstock.engine.config import EngineConfig
from penstock.engine.run.defaults import (
    CPU_BLOCK_SIZE,
    CPU_MAX_RUNNING,
    CPU_STEP_TOKENS,
    GIB,
    GPU_BLOCK_SIZE,
    GPU_MAX_RUNNING,
    GPU_STEP_TOKENS,
    cpu_kv_bytes,
    gpu_kv_bytes,
)
from penstock.engine.run.step import StepModel
from penstock.errors import ConfigError
from penstock.machine import available_memory, total_memory, usable_cpus

logger = logging.getLogger("penstock.engine")


@dataclass(frozen=True, slots=True)
class EngineSize:
    num_blocks: int
    block_size: int
    max_model_len: int
    max_running: int
    max_step_tokens: int


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}.") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, got {name!r}.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device is cuda, but torch sees no GPU here; use --device cpu or install a CUDA build."
        )
    if device.type == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        raise ConfigError(
            f"device is {name}, but torch sees {torch.cuda.device_count()} GPUs here, numbered from 0."
        )
    return device


def gpu_uuid(device: torch.device) -> str:
    """What the driver calls it, whatever its number among those that this process may see."""
    if device.type != "cuda":
        return ""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else ""


@contextmanager
def memory_for(device: torch.device, what: str, remedy: str) -> Iterator[None]:
    """Say what the device had no memory for while the engine started."""
    free, total = _memory(device)
    try:
        yield
    except torch.OutOfMemoryError:
        raise ConfigError(
            f"{device} has no memory for {what}: {free / GIB:.1f} of {total / GIB:.1f} GiB were free before. "
            f"{remedy}, or end other programs that use it."
        ) from None


def stored_size(config: EngineConfig) -> str:
    """Of the weights, as half a sentence; empty if there are none."""
    path = Path(config.model)
    files = [] if config.load_format == "random" else [path] if path.is_file() else path.glob("*.safetensors")
    sizes = [file.stat().st_size for file in files]
    return f" ({sum(sizes) / GIB:.1f} GiB as stored)" if sizes else ""


def set_threads(wanted: int | None) -> None:
    """Give torch as many threads as asked for; otherwise as many as this process has CPUs for.

    torch itself counts the CPUs of the machine, not what a container's quota leaves of them.
    """
    torch.set_num_threads(wanted or usable_cpus())


def block_size(config: EngineConfig, device: torch.device) -> int:
    return config.block_size or (CPU_BLOCK_SIZE if device.type == "cpu" else GPU_BLOCK_SIZE)


def size_engine(config: EngineConfig, model: StepModel) -> EngineSize:
    on_cpu = model.device.type == "cpu"
    max_running = config.max_running or (CPU_MAX_RUNNING if on_cpu else GPU_MAX_RUNNING)
    max_step_tokens = config.max_step_tokens or max(
        CPU_STEP_TOKENS if on_cpu else GPU_STEP_TOKENS, max_running
    )
    if config.max_running is None:
        max_running = min(max_running, max_step_tokens)
    if config.max_model_len is not None and config.max_model_len > model.config.longest_context:
        raise ConfigError(
            f"max_model_len is {config.max_model_len}, but the model's context is "
            f"{model.config.longest_context} tokens."
        )
    per_token = model.kv_bytes_per_token
    context = config.max_model_len or model.config.context_length
    block = block_size(config, model.device)
    whole_blocks = -(-context // block) * block
    if on_cpu:
        available = config.kv_cache_memory or cpu_kv_bytes(available_memory(), per_token, whole_blocks)
    else:
        available = _gpu_memory(config, model, max_step_tokens, max_running, block, context)
    num_blocks = available // (per_token * block)
    if num_blocks * block < context:
        if config.max_model_len is not None or num_blocks < 1:
            raise ConfigError(
                f"The KV cache may have {available / GIB:.2f} GiB, but {context} tokens need "
                f"{context * per_token / GIB:.2f} GiB; raise kv_cache_memory or lower max_model_len."
            )
        logger.warning(
            "The KV cache holds %d tokens, so the context is shortened from the model's %d; "
            "raise kv_cache_memory for more.",
            num_blocks * block,
            context,
        )
        context = num_blocks * block
    return EngineSize(num_blocks, block, context, max_running, max_step_tokens)


def _gpu_memory(
    config: EngineConfig, model: StepModel, max_rows: int, max_running: int, block: int, context: int
) -> int:
    """For the KV cache."""
    free, total = torch.cuda.mem_get_info(model.device)
    longest = min(context, max(block, free // model.kv_bytes_per_token))  # there will be room for
    # Where the size is given too: so the first requests wait for no kernel, and a step too large shows now.
    activations = model.activation_bytes(max_rows, max_running, block, longest)
    if config.kv_cache_memory is not None:
        return config.kv_cache_memory
    free, total = torch.cuda.mem_get_info(model.device)
    allowed = gpu_kv_bytes(total, free, config.memory_fraction, activations)
    if allowed <= 0:
        raise ConfigError(
            f"No GPU memory is left for the KV cache: {free / GIB:.1f} of {total / GIB:.1f} GiB are free, a "
            f"step needs {activations / GIB:.1f} GiB and memory_fraction is {config.memory_fraction}; lower "
            "max_step_tokens, or take a smaller model or precision."
        )
    return allowed


def _memory(device: torch.device) -> tuple[int, int]:
    """Free and in all, in bytes."""
    if device.type == "cpu":
        return available_memory(), total_memory()
    return torch.cuda.mem_get_info(device)
