"""The llama family: Llama 2 and 3.x, SmolLM2, and in GGUF files also Mistral and Mixtral."""

from __future__ import annotations

from penstock.engine.models.architecture import EXPERT_TENSORS, TENSORS, Architecture
from penstock.engine.models.common import decoder_config, experts_config, num_layers
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields


def _config(fields: Fields) -> DecoderConfig:
    if fields.format == "safetensors":
        return decoder_config(fields, "llama")
    # llama.cpp's converter gives Mistral and Mixtral files this family's name too.
    layers = num_layers(fields)
    experts = None
    if fields.integer("num_experts", 0, least=0):
        experts = experts_config(fields, intermediate_size="intermediate_size", normalized=True)
    return decoder_config(
        fields,
        "llama",
        windows=[fields.optional_integer("sliding_window")] * layers,
        experts=experts,
        expert_layers=[experts is not None] * layers,
    )


ARCHITECTURE = Architecture(
    name="llama",
    class_name="LlamaForCausalLM",
    gguf_name="llama",
    config=_config,
    tensors={**TENSORS, **EXPERT_TENSORS},
    gguf_interleaves_rotary=True,
)
