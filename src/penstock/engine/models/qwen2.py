"""Qwen 2 and 2.5: biases on query, key and value; windows from some layer on, if at all."""

from __future__ import annotations

from penstock.engine.models.architecture import Architecture
from penstock.engine.models.common import decoder_config, switched_window, windows_by_layer
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields


def late_windows(fields: Fields) -> list[int | None]:
    """Qwen's rule: with `use_sliding_window`, layers from `max_window_layers` on have a window."""
    first = fields.integer("max_window_layers", 28, least=0)
    return windows_by_layer(fields, switched_window(fields, 4096), lambda layer: layer >= first)


def _config(fields: Fields) -> DecoderConfig:
    return decoder_config(
        fields,
        "qwen2",
        windows=late_windows(fields),
        qkv_bias=True,
        attention_output_bias=False,
        mlp_bias=False,
    )


ARCHITECTURE = Architecture(
    name="qwen2",
    class_name="Qwen2ForCausalLM",
    gguf_name="qwen2",
    config=_config,
)
