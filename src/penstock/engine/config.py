"""The engine's options: plain data, no torch. `None` means "decided from the device"."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.engine.request import Pooling, Request, SamplingParams
from penstock.errors import ConfigError, InvalidRequestError

# What a model can be asked for: text, a vector for each text, how well two texts go together.
Task = Literal["generate", "embed", "score"]

# Options that count something, and the least of each; a sequence needs a prompt token and a new one.
_COUNTS = {
    "max_model_len": 2,
    "max_running": 1,
    "max_waiting": 1,
    "max_step_tokens": 1,
    "block_size": 1,
    "kv_cache_memory": 1,
    "threads": 1,
}
_DECIDED_LATER = (
    "max_model_len",
    "max_running",
    "max_step_tokens",
    "block_size",
    "kv_cache_memory",
    "threads",
)
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
GPU_BLOCK_SIZES = (16, 32, 64, 128)  # that its kernels are made for
MAX_ARRIVAL_WINDOW = 0.050  # seconds
MAX_THREADS = 1024
PRECISIONS = ("auto", "int8", "float32", "bfloat16", "float16", "fp8")
KV_PRECISIONS = ("auto", "fp8")
LOAD_FORMATS = ("auto", "random")
# What a GPU's step can be computed without, to measure what each of them is worth.
PARTS = ("graphs", "pieces", "overlap", "fused", "shared_prefix", "skinny")
_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
# Values that other engines have other words for.
_OTHER_WORDS = {"kv_precision": {"fp8_e4m3": "fp8"}, "load_format": {"dummy": "random"}}
POOLINGS = ("auto", "none", "last", "mean", "cls")
_WORDS = {
    "precision": PRECISIONS,
    "kv_precision": KV_PRECISIONS,
    "pooling": POOLINGS,
    "load_format": LOAD_FORMATS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    model: str  # a GGUF file or a folder of safetensors
    device: str = "auto"
    precision: str = "auto"  # of the computation; auto: decided from the device
    max_model_len: int | None = None  # tokens; None: the model's own context
    max_running: int | None = None  # choices computed in one step; a request has n of them
    max_waiting: int = 1024  # choices queued before new ones are refused
    max_step_tokens: int | None = None  # token budget of one step
    block_size: int | None = None  # tokens in one KV block
    kv_precision: str = "auto"  # of the KV cache; auto: as the computation; fp8: E4M3 with scales, on a GPU
    kv_cache_memory: int | None = None  # bytes
    memory_fraction: float = 0.9  # of an accelerator's memory, weights included
    prefix_caching: bool = True
    arrival_window: float = 0.0  # seconds to wait so that arrivals group; 0: off
    ageing_seconds: float = 10.0  # waiting this long is worth one priority level
    threads: int | None = None  # CPU threads for the device work
    pooling: str = "auto"  # how hidden states become a vector; auto: what the model's files say; none: not
    load_format: str = "auto"  # random: the shapes of the model's description, random numbers in them
    without: tuple[str, ...] = ()  # of PARTS

    def __post_init__(self) -> None:
        for name, ours in _OTHER_WORDS.items():
            value = getattr(self, name)
            if isinstance(value, str):
                object.__setattr__(self, name, ours.get(value, value))
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            if value is None and name in _DECIDED_LATER:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{name} must be an integer, got {value!r}.")
            if value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}.")
        if self.threads is not None and self.threads > MAX_THREADS:
            raise ConfigError(f"threads must be at most {MAX_THREADS}, got {self.threads}.")
        if self.block_size is not None and self.block_size not in BLOCK_SIZES:
            raise ConfigError(
                f"block_size must be one of {', '.join(map(str, BLOCK_SIZES))}, got {self.block_size}."
            )
        for name in ("memory_fraction", "arrival_window", "ageing_seconds"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise ConfigError(f"{name} must be a number, got {value!r}.")
        if not 0.0 < self.memory_fraction <= 1.0:
            raise ConfigError(f"memory_fraction must be above 0 and at most 1, got {self.memory_fraction}.")
        if not 0.0 <= self.arrival_window <= MAX_ARRIVAL_WINDOW:
            raise ConfigError(
                f"arrival_window must be 0 to {MAX_ARRIVAL_WINDOW} seconds, got {self.arrival_window}."
            )
        if not 0 < self.ageing_seconds < math.inf:
            raise ConfigError(f"ageing_seconds must be above 0 and finite, got {self.ageing_seconds}.")
        for name, words in _WORDS.items():
            word = getattr(self, name)
            if word not in words:
                raise ConfigError(f"{name} must be one of {', '.join(words)}, got {word!r}.")
        given: object = self.without
        parts = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
        for part in parts:
            if part not in PARTS:
                raise ConfigError(f"without must be some of {', '.join(PARTS)}, got {part!r}.")
        object.__setattr__(self, "without", parts)
        if not isinstance(self.device, str) or not _DEVICE.fullmatch(self.device):
            raise ConfigError(f"device must be auto, cpu, cuda or cuda:N, got {self.device!r}.")
        self.check_device(self.device)
        if (
            self.max_running is not None
            and self.max_step_tokens is not None
            and self.max_running > self.max_step_tokens
        ):
            raise ConfigError(
                f"max_running ({self.max_running}) must not exceed max_step_tokens ({self.max_step_tokens}): "
                "every running request needs one token of each step."
            )

    def check_device(self, device: str) -> None:
        """Raise ConfigError if an option asks for what this device cannot do; auto is any."""
        for name in ("precision", "kv_precision"):
            if getattr(self, name) == "fp8" and device == "cpu":
                raise ConfigError(f"{name} is fp8, which needs a GPU; on the CPU leave it at auto.")
        if self.precision == "int8" and device.startswith("cuda"):
            raise ConfigError("precision is int8, which is for the CPU; on a GPU ask for auto or fp8.")
        if self.block_size not in (None, *GPU_BLOCK_SIZES) and device.startswith("cuda"):
            sizes = ", ".join(map(str, GPU_BLOCK_SIZES))
            raise ConfigError(f"block_size is {self.block_size}, but on a GPU it must be one of {sizes}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What the engine settled on once the model was loaded."""

    architecture: str
    device: str
    gpu: str = ""  # its UUID, by which the driver knows it; empty: on the CPU, or not known
    precision: str  # what it computes in
    quantization: str  # of the weights as stored, e.g. "Q4_1" or "none"
    vocab_size: int
    max_model_len: int
    max_running: int
    max_step_tokens: int
    block_size: int
    num_blocks: int
    weight_bytes: int  # all matrices but the embedding; a step reads them, but for experts it does not use
    weight_count: int = 0  # numbers in them; 0: not known
    kv_cache_bytes: int = 0  # set aside for the KV cache
    weights_sha256: str = ""  # of a sample of the files (`hub.fingerprint`); empty: not known
    load_seconds: float
    tasks: tuple[Task, ...] = ("generate",)
    pooling: Pooling | None = None  # of embeddings, or "score" where a head compares texts itself
    embedding_size: int = 0  # numbers in a vector; 0 where there are none

    def check_tokens(self, name: str, tokens: Sequence[int]) -> None:
        """Raise InvalidRequestError unless these are ids of the model, one at least."""
        if not tokens:
            raise InvalidRequestError(f"The {name} is empty; it must have at least one token.", param=name)
        for token in (min(tokens), max(tokens)):
            if not 0 <= token < self.vocab_size:
                raise InvalidRequestError(
                    f"The {name} has the token id {token}, but the vocabulary has ids 0 to "
                    f"{self.vocab_size - 1}.",
                    param=name,
                )

    def smallest_request(self, request_id: str, *, priority: int = 0) -> Request:
        """One token in, one token or vector out: whether the engine works shows by its answer."""
        if "generate" in self.tasks:
            params = SamplingParams(max_tokens=1, temperature=0.0)
            return Request(id=request_id, prompt=[0], params=params, priority=priority)
        return Request(id=request_id, prompt=[0], pooling=self.pooling, priority=priority)
