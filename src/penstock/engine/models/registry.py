"""The architectures Penstock runs itself. Adding one: a file beside this, and a line in `ARCHITECTURES`."""

from __future__ import annotations

from penstock.engine.models import llama
from penstock.engine.models.architecture import Architecture
from penstock.errors import ModelError

ARCHITECTURES: tuple[Architecture, ...] = (llama.ARCHITECTURE,)


def by_gguf_name(name: str) -> Architecture:
    for architecture in ARCHITECTURES:
        if architecture.gguf_name == name:
            return architecture
    raise _unknown(name)


def by_class_names(names: list[str]) -> Architecture:
    for architecture in ARCHITECTURES:
        if architecture.class_name in names:
            return architecture
    raise _unknown(", ".join(names) or "(none given)")


def _unknown(name: str) -> ModelError:
    known = ", ".join(f"{a.gguf_name} ({a.class_name})" for a in ARCHITECTURES)
    return ModelError(
        f"The architecture {name} is not one that Penstock runs itself; it knows {known}. "
        "Serve the model with another engine (vLLM, SGLang, llama.cpp) behind Penstock's gateway."
    )
