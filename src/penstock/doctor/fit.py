"""Whether a model fits: one formula, the engine's own, for any model and device.

    needed = weights + embedding copy + KV cache + process

- weights: parameters x bytes of a number of the computation. Quantized files too: they are expanded
  when they are loaded. In int8 they stay small: 8 bits, or the 4 of a file, and a scale and an offset of
  16 bits for each 32 of them. In fp8 all are 8 bits but embedding and output matrix, which are 16.
- embedding copy: float32 on the CPU keeps a token embedding that is also the output matrix twice, once
  for look-ups and once packed for the matrix product.
- KV cache: tokens of context x 2 x layers x KV heads x head size x bytes of a number; 2 bytes in int8
  and fp8. With a cache in fp8 it is one, and a scale of 32 bits for each key and value.
- process: `PROCESS_BYTES` for torch, the front door and a step's intermediate results. On a GPU it is
  the engine's `ACTIVATION_BYTES`, and only `memory_fraction` of the memory may be used.

How much context there is, is decided as the engine decides it (`engine/run/defaults.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from penstock.engine.run.defaults import ACTIVATION_BYTES, cpu_kv_bytes, gpu_kv_bytes

PROCESS_BYTES = 1 << 29  # seen on Linux: some 330 MB for the engine, 150 MB for the front door
WEIGHT_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.125, "fp8": 1.0}
KV_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 2, "fp8": 2}
FP8_KV_BYTES = 1 + 4 / 64  # with the scale; of heads larger than 64 it is less
STATED_CONTEXT = (
    4096  # tokens a model must have room for to be said to fit, unless its own context is shorter
)
LEAST_CONTEXT = 256  # tokens; with fewer nobody would call it serving

Verdict = Literal["fits", "short", "no"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Counts of numbers, not bytes."""

    parameters: int
    embedding: int  # those of the token embedding
    tied: bool  # the embedding is the output matrix too
    kv_per_token: int
    context: int  # tokens
    four_bits: int = 0  # parameters stored in 4 bits, which int8 leaves as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One device's memory in bytes, and how the settings have it shared out."""

    device: Literal["cpu", "cuda"]
    total: int
    available: int
    fraction: float = 0.9  # of a GPU's memory
    kv_bytes: int | None = None  # asked for; None leaves it to the engine
    kv_precision: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Bytes and tokens. `context` is what the engine would offer, `stated` what was compared with."""

    precision: str
    weights: int  # with the embedding's copy
    kv_per_token: int
    context: int
    stated: int
    needed: int  # for `stated` tokens
    kv_bytes: int  # the engine's KV cache, for all requests together; 0 where it has none to give
    verdict: Verdict

    def needed_for(self, tokens: int) -> int:
        return self.needed + (tokens - self.stated) * self.kv_per_token


def fit(size: ModelSize, precision: str, budget: Budget, *, context: int | None = None) -> Fit:
    """What becomes of a model computed in `precision`; `context` None compares with the stated one."""
    weights = weight_bytes(size, precision)
    if size.tied and precision == "float32" and budget.device == "cpu":
        weights += size.embedding * 4
    number = FP8_KV_BYTES if budget.kv_precision == "fp8" else KV_BYTES[precision]
    per_token = math.ceil(size.kv_per_token * number)
    stated = min(size.context, context or STATED_CONTEXT)
    process = PROCESS_BYTES if budget.device == "cpu" else ACTIVATION_BYTES
    cache = _cache(weights, budget, per_token, size.context)
    offered = min(size.context, cache // per_token) if per_token else size.context
    if offered >= stated:
        verdict: Verdict = "fits"
    else:
        verdict = "short" if offered >= min(LEAST_CONTEXT, size.context) else "no"
    return Fit(
        precision=precision,
        weights=weights,
        kv_per_token=per_token,
        context=offered,
        stated=stated,
        needed=weights + stated * per_token + process,
        kv_bytes=cache,
        verdict=verdict,
    )


def weight_bytes(size: ModelSize, precision: str) -> int:
    """Of the parameters, each once."""
    weights = int(size.parameters * WEIGHT_BYTES[precision])
    if precision == "int8":
        weights -= size.four_bits // 2
    if precision == "fp8":  # embedding and output matrix are 16 bits
        weights += size.embedding * (1 if size.tied else 2)
    return weights


def _cache(weights: int, budget: Budget, per_token: int, context: int) -> int:
    """Bytes the engine would give to the KV cache; 0 if they, or the weights, are not to be had."""
    if budget.device == "cpu":
        left = budget.available - weights - PROCESS_BYTES
        share = cpu_kv_bytes(left, per_token, context)
    else:
        share = left = gpu_kv_bytes(budget.total, budget.available - weights, budget.fraction)
    cache = share if budget.kv_bytes is None else budget.kv_bytes
    return cache if 0 < cache <= left else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A dense decoder of the llama kind, by the numbers its authors published."""

    like: str
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    context: int
    tied: bool = False

    @property
    def size(self) -> ModelSize:
        attention = 2 * self.hidden * (self.heads + self.kv_heads) * self.head
        layer = attention + 3 * self.hidden * self.inner + 2 * self.hidden
        embedding = self.vocabulary * self.hidden
        return ModelSize(
            parameters=self.layers * layer + self.hidden + embedding * (1 if self.tied else 2),
            embedding=embedding,
            tied=self.tied,
            kv_per_token=2 * self.layers * self.kv_heads * self.head,
            context=self.context,
        )


def _shape(like: str, numbers: tuple[int, int, int, int, int, int, int, int], *, tied: bool = False) -> Shape:
    layers, hidden, inner, heads, kv_heads, head, vocabulary, context = numbers
    return Shape(
        like=like, layers=layers, hidden=hidden, inner=inner, heads=heads, kv_heads=kv_heads, head=head,
        vocabulary=vocabulary, context=context, tied=tied,
    )  # fmt: skip


# layers, hidden, inner, heads, KV heads, head size, vocabulary, context
WELL_KNOWN = (
    _shape("SmolLM2-135M", (30, 576, 1536, 9, 3, 64, 49152, 8192), tied=True),
    _shape("SmolLM2-360M", (32, 960, 2560, 15, 5, 64, 49152, 8192), tied=True),
    _shape("Llama-3.2-1B", (16, 2048, 8192, 32, 8, 64, 128256, 131072), tied=True),
    _shape("SmolLM2-1.7B", (24, 2048, 8192, 32, 32, 64, 49152, 8192), tied=True),
    _shape("Llama-3.2-3B", (28, 3072, 8192, 24, 8, 128, 128256, 131072), tied=True),
    _shape("Llama-3.1-8B", (32, 4096, 14336, 32, 8, 128, 128256, 131072)),
    _shape("Qwen3-14B", (40, 5120, 17408, 40, 8, 128, 151936, 40960)),
    _shape("Qwen3-32B", (64, 5120, 25600, 64, 8, 128, 151936, 40960)),
    _shape("Llama-3.3-70B", (80, 8192, 28672, 64, 8, 128, 128256, 131072)),
)
