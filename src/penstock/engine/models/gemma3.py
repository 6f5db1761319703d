"""Gemma 3, text: Gemma 2 with query and key norms instead of soft caps, and a local rope."""

from __future__ import annotations

from penstock.engine.models.architecture import POST_NORMS, TENSORS, Architecture
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields
from penstock.engine.models.gemma2 import gemma_config

LAYERS_OF_27B = 62


def _config(fields: Fields) -> DecoderConfig:
    return gemma_config(
        fields,
        "gemma3",
        full_every=fields.integer("sliding_window_pattern", 6),
        layers_of_27b=LAYERS_OF_27B,
        logits_softcap=None,
        query_key_norm="head",
        theta=1_000_000.0,
        local_theta=10_000.0,
    )


ARCHITECTURE = Architecture(
    name="gemma3",
    class_name="Gemma3ForCausalLM",
    bare_class_name="Gemma3TextModel",
    gguf_name="gemma3",
    config=_config,
    tensors={**TENSORS, **POST_NORMS},
)
