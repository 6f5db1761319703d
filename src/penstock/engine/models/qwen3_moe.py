"""Qwen 3's mixtures of experts."""

from __future__ import annotations

from penstock.engine.models.architecture import EXPERT_TENSORS, TENSORS, Architecture
from penstock.engine.models.common import decoder_config, experts_config, num_layers, switched_window
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields


def _config(fields: Fields) -> DecoderConfig:
    layers = num_layers(fields)
    return decoder_config(
        fields,
        "qwen3_moe",
        windows=[switched_window(fields, 4096)] * layers,
        query_key_norm="head",
        mlp_bias=False,
        experts=experts_config(
            fields,
            intermediate_size="moe_intermediate_size",
            # GGUF files do not say; llama.cpp takes it for granted.
            normalized=fields.flag("norm_topk_prob", fields.format == "gguf"),
        ),
        expert_layers=_expert_layers(fields, layers),
    )


def _expert_layers(fields: Fields, layers: int) -> list[bool]:
    """Every `decoder_sparse_step`-th layer, but for those named in `mlp_only_layers`."""
    step = fields.integer("decoder_sparse_step", 1)
    dense = fields.integers("mlp_only_layers")
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(layers)]


ARCHITECTURE = Architecture(
    name="qwen3_moe",
    class_name="Qwen3MoeForCausalLM",
    gguf_name="qwen3moe",
    config=_config,
    tensors={**TENSORS, **EXPERT_TENSORS},
)
