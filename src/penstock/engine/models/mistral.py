"""Mistral: a llama whose layers see a window of the last positions only."""

from __future__ import annotations

from penstock.engine.models.architecture import Architecture
from penstock.engine.models.common import decoder_config, num_layers
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields


def _config(fields: Fields) -> DecoderConfig:
    window = fields.optional_integer("sliding_window", 4096)  # null: no window
    return decoder_config(
        fields, "mistral", windows=[window] * num_layers(fields), qkv_bias=False, mlp_bias=False
    )


ARCHITECTURE = Architecture(
    name="mistral",
    class_name="MistralForCausalLM",
    gguf_name=None,  # "llama"
    config=_config,
)
