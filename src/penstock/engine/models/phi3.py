"""Phi 3, 3.5 and 4: query, key and value in one tensor, gate and up in another; long rope."""

from __future__ import annotations

from penstock.engine.models.architecture import TENSORS, Architecture
from penstock.engine.models.common import decoder_config, num_layers
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields


def _config(fields: Fields) -> DecoderConfig:
    return decoder_config(
        fields,
        "phi3",
        windows=[fields.optional_integer("sliding_window")] * num_layers(fields),
        norm_eps=1e-5,
        rope_aliases={"su": "longrope", "yarn": "longrope"},  # as the first releases called it
        qkv_bias=False,
        mlp_bias=False,
    )


ARCHITECTURE = Architecture(
    name="phi3",
    class_name="Phi3ForCausalLM",
    gguf_name="phi3",
    config=_config,
    tensors={
        **TENSORS,
        "qkv": ("model.layers.{i}.self_attn.qkv_proj", "blk.{i}.attn_qkv"),
        "gate_up": ("model.layers.{i}.mlp.gate_up_proj", "blk.{i}.ffn_up"),
    },
)
