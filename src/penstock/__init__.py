"""Penstock: the LLM serving stack in one Python package.

`from penstock import LLM, SamplingParams` runs a model in this process;
`penstock serve` puts the same engine behind an OpenAI-compatible API.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.engine.beam import BeamSearchParams
    from penstock.engine.request import SamplingParams
    from penstock.llm import LLM, CompletionOutput, RequestOutput, StreamChunk

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "BeamSearchParams",
    "CompletionOutput",
    "RequestOutput",
    "SamplingParams",
    "StreamChunk",
    "__version__",
]

# Resolved on first use: importing penstock costs nothing and needs no torch.
_HOMES = {
    "BeamSearchParams": "penstock.engine.beam",
    "LLM": "penstock.llm",
    "CompletionOutput": "penstock.llm",
    "RequestOutput": "penstock.llm",
    "SamplingParams": "penstock.engine.request",
    "StreamChunk": "penstock.llm",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
