"""The architectures Penstock runs itself. Adding one: a file beside this, and a line in `ARCHITECTURES`."""

from __future__ import annotations

from penstock.engine.models import (
    gemma2,
    gemma3,
    granite,
    llama,
    mistral,
    mixtral,
    olmo2,
    phi3,
    qwen2,
    qwen3,
    qwen3_moe,
    smollm3,
)
from penstock.engine.models.architecture import Architecture
from penstock.errors import ModelError

ARCHITECTURES: tuple[Architecture, ...] = (
    llama.ARCHITECTURE,
    mistral.ARCHITECTURE,
    mixtral.ARCHITECTURE,
    qwen2.ARCHITECTURE,
    qwen3.ARCHITECTURE,
    qwen3_moe.ARCHITECTURE,
    gemma2.ARCHITECTURE,
    gemma3.ARCHITECTURE,
    phi3.ARCHITECTURE,
    olmo2.ARCHITECTURE,
    granite.ARCHITECTURE,
    smollm3.ARCHITECTURE,
)


def by_gguf_name(name: str) -> Architecture:
    for architecture in ARCHITECTURES:
        if architecture.gguf_name == name:
            return architecture
    raise _unknown(name, ", ".join(a.gguf_name for a in ARCHITECTURES if a.gguf_name is not None))


def by_class_names(names: list[str]) -> Architecture:
    for architecture in ARCHITECTURES:
        if not set(architecture.class_names).isdisjoint(names):
            return architecture
    raise _unknown(", ".join(names) or "(none given)", ", ".join(a.class_name for a in ARCHITECTURES))


def _unknown(name: str, known: str) -> ModelError:
    return ModelError(
        f"The architecture {name} is not one that Penstock runs itself; it knows {known}. "
        "Serve the model with another engine (vLLM, SGLang, llama.cpp) behind Penstock's gateway."
    )
