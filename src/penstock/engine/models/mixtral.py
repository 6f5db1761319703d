"""Mixtral: a Mistral with a mixture of experts in every layer."""

from __future__ import annotations

from penstock.engine.models.architecture import EXPERT_TENSORS, TENSORS, Architecture
from penstock.engine.models.common import decoder_config, experts_config, num_layers
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields


def _config(fields: Fields) -> DecoderConfig:
    layers = num_layers(fields)
    return decoder_config(
        fields,
        "mixtral",
        windows=[fields.optional_integer("sliding_window")] * layers,
        theta=1_000_000.0,
        norm_eps=1e-5,
        qkv_bias=False,
        experts=experts_config(fields, intermediate_size="intermediate_size", normalized=True),
        expert_layers=[True] * layers,
    )


_BLOCK = "model.layers.{i}.block_sparse_moe"

ARCHITECTURE = Architecture(
    name="mixtral",
    class_name="MixtralForCausalLM",
    gguf_name=None,  # "llama"
    config=_config,
    tensors={
        **TENSORS,
        "router": (_BLOCK + ".gate", EXPERT_TENSORS["router"][1]),
        "expert_gate": (_BLOCK + ".experts.{e}.w1", EXPERT_TENSORS["expert_gate"][1]),
        "expert_up": (_BLOCK + ".experts.{e}.w3", EXPERT_TENSORS["expert_up"][1]),
        "expert_down": (_BLOCK + ".experts.{e}.w2", EXPERT_TENSORS["expert_down"][1]),
    },
)
