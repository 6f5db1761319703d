"""Qwen 3: a norm of each query and key head instead of biases."""

from __future__ import annotations

from penstock.engine.models.architecture import Architecture
from penstock.engine.models.common import decoder_config
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields
from penstock.engine.models.qwen2 import late_windows


def _config(fields: Fields) -> DecoderConfig:
    return decoder_config(
        fields, "qwen3", windows=late_windows(fields), head_dim=128, query_key_norm="head", mlp_bias=False
    )


ARCHITECTURE = Architecture(
    name="qwen3",
    class_name="Qwen3ForCausalLM",
    gguf_name="qwen3",
    config=_config,
)
