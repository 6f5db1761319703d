"""Gemma 2: norms around attention and MLP, soft caps, every other layer with a window."""

from __future__ import annotations

import math
from typing import Any

from penstock.engine.models.architecture import POST_NORMS, TENSORS, Architecture
from penstock.engine.models.common import decoder_config, num_layers, windows_by_layer
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields

LAYERS_OF_27B = 46


def gemma_config(
    fields: Fields,
    architecture: str,
    *,
    full_every: int,
    layers_of_27b: int,
    logits_softcap: float | None,
    **switches: Any,
) -> DecoderConfig:
    """What Gemma 2 and 3 share; every `full_every`-th layer sees everything."""
    window = fields.optional_integer("sliding_window", 4096)
    hidden = fields.integer("hidden_size")
    return decoder_config(
        fields,
        architecture,
        windows=windows_by_layer(fields, window, lambda layer: (layer + 1) % full_every != 0),
        head_dim=256,
        activation="hidden_activation",
        default_activation="gelu_pytorch_tanh",
        tied=True,
        norms="around",
        # llama.cpp's converter has added the one.
        norm_weights_from_one=fields.format == "safetensors",
        attention_scale=_attention_scale(fields, hidden, layers_of_27b),
        embedding_multiplier=math.sqrt(hidden),
        logits_softcap=fields.optional_number("final_logit_softcapping", logits_softcap),
        **switches,
    )


def _attention_scale(fields: Fields, hidden: int, layers_of_27b: int) -> float:
    if fields.format == "safetensors":
        return fields.number("query_pre_attn_scalar", 256.0) ** -0.5
    # GGUF files do not say: it is by the head's size, but for the 27B models.
    if num_layers(fields) == layers_of_27b:
        default = (hidden / fields.integer("num_attention_heads")) ** -0.5
    else:
        default = fields.integer("head_dim", 256) ** -0.5
    return fields.number("attention_multiplier", default)


def _config(fields: Fields) -> DecoderConfig:
    return gemma_config(
        fields,
        "gemma2",
        full_every=2,
        layers_of_27b=LAYERS_OF_27B,
        attention_softcap=fields.optional_number("attn_logit_softcapping", 50.0),
        logits_softcap=30.0,
    )


ARCHITECTURE = Architecture(
    name="gemma2",
    class_name="Gemma2ForCausalLM",
    gguf_name="gemma2",
    config=_config,
    tensors={**TENSORS, **POST_NORMS},
)
