"""Granite 3: a llama with four multipliers."""

from __future__ import annotations

from penstock.engine.models.architecture import Architecture
from penstock.engine.models.common import decoder_config
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields


def _config(fields: Fields) -> DecoderConfig:
    return decoder_config(
        fields,
        "granite",
        attention_scale=fields.number("attention_multiplier", 1.0),
        embedding_multiplier=fields.number("embedding_multiplier", 1.0),
        residual_multiplier=fields.number("residual_multiplier", 1.0),
        logits_divisor=fields.number("logits_scaling", 1.0),
    )


ARCHITECTURE = Architecture(
    name="granite",
    class_name="GraniteForCausalLM",
    gguf_name="granite",
    config=_config,
    gguf_interleaves_rotary=True,
)
