"""The llama family: Llama 2 and 3.x, SmolLM2, and whatever else says LlamaForCausalLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.engine.layers.rotary import RopeScaling
from penstock.engine.models.architecture import DENSE_TENSORS, Architecture
from penstock.engine.models.config import DecoderConfig
from penstock.errors import ModelError


def _config_from_json(config: dict[str, Any]) -> DecoderConfig:
    heads = config["num_attention_heads"]
    # transformers 5 keeps theta and scaling together; before, they were two keys.
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelError(
            f"The llama family is run with the activation 'silu'; this model has {activation!r}."
        )
    return DecoderConfig(
        architecture="llama",
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        context_length=config["max_position_embeddings"],
        norm_eps=config.get("rms_norm_eps", 1e-6),
        rope_theta=config.get("rope_theta") or rope.get("rope_theta") or 10000.0,
        rope_scaling=_rope_scaling(rope),
        tied_embeddings=config.get("tie_word_embeddings", False),
        attention_bias=config.get("attention_bias", False),
        mlp_bias=config.get("mlp_bias", False),
    )


def _rope_scaling(rope: dict[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    match kind:
        case "default":
            return None
        case "linear":
            return RopeScaling(kind="linear", factor=rope["factor"])
        case "llama3":
            return RopeScaling(
                kind="llama3",
                factor=rope["factor"],
                low_freq_factor=rope["low_freq_factor"],
                high_freq_factor=rope["high_freq_factor"],
                original_context=rope["original_max_position_embeddings"],
            )
    raise ModelError(f"The rope scaling {kind!r} is not known here; known are default, linear and llama3.")


def _config_from_gguf(metadata: Mapping[str, Any]) -> DecoderConfig:
    heads = metadata["llama.attention.head_count"]
    hidden = metadata["llama.embedding_length"]
    experts = metadata.get("llama.expert_count", 0)
    if experts:
        raise ModelError(
            f"This llama file is a mixture of {experts} experts, which Penstock does not run yet."
        )
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise ModelError(
            f"The rope scaling {scaling!r} is not known here; known are none, linear and llama 3's."
        )
    return DecoderConfig(
        architecture="llama",
        vocab_size=metadata.get("llama.vocab_size") or len(metadata["tokenizer.ggml.tokens"]),
        hidden_size=hidden,
        intermediate_size=metadata["llama.feed_forward_length"],
        num_layers=metadata["llama.block_count"],
        num_heads=heads,
        num_kv_heads=metadata.get("llama.attention.head_count_kv", heads),
        head_dim=metadata.get("llama.attention.key_length", hidden // heads),
        context_length=metadata["llama.context_length"],
        norm_eps=metadata["llama.attention.layer_norm_rms_epsilon"],
        rope_theta=metadata.get("llama.rope.freq_base", 10000.0),
        rope_scaling=(
            RopeScaling(kind="linear", factor=metadata["llama.rope.scaling.factor"])
            if scaling == "linear"
            else None
        ),
    )


ARCHITECTURE = Architecture(
    gguf_name="llama",
    class_name="LlamaForCausalLM",
    config_from_json=_config_from_json,
    config_from_gguf=_config_from_gguf,
    tensors=DENSE_TENSORS,
    gguf_interleaves_rotary=True,
)
