"""GGUF metadata under config.json's names, so that an architecture file needs to read only one of them."""

from __future__ import annotations

from typing import Any

from penstock.engine.models.architecture import Architecture
from penstock.engine.models.fields import Fields
from penstock.hub.gguf import GGUFFile

# config.json's name -> GGUF's, without the architecture in front of it.
_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "rope_local_base_freq": "rope.freq_base_swa",
}
_ROPE_KEYS = {
    "rope_theta": "rope.freq_base",
    "rotary_dim": "rope.dimension_count",
    "rope_type": "rope.scaling.type",
    "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "attention_factor": "rope.scaling.attn_factor",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
}
# Tensors that are part of the description: divisors of the rotary frequencies.
ROPE_FACTORS = {"rope_freqs.weight": ("short_factor", "long_factor"),
                "rope_factors_short.weight": ("short_factor",),
                "rope_factors_long.weight": ("long_factor",)}  # fmt: skip


def gguf_fields(file: GGUFFile, architecture: Architecture) -> Fields:
    prefix = f"{architecture.gguf_name}."
    names = {name: prefix + key for name, key in (_KEYS | _ROPE_KEYS).items()}
    names["extra_attention_factor"] = names["attention_factor"]
    names |= {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}

    def given(keys: dict[str, str]) -> dict[str, Any]:
        return {
            name: file.metadata[prefix + key] for name, key in keys.items() if prefix + key in file.metadata
        }

    values = given(_KEYS)
    if "vocab_size" not in values and isinstance(tokens := file.get("tokenizer.ggml.tokens"), list):
        values["vocab_size"] = len(tokens)

    def stored(name: str, kind: str) -> bool:
        return architecture.tensors[name][1].format(i=0) + kind in file.tensors

    # Metadata says nothing of these; which tensors there are does.
    values["attention_bias"] = stored("query", ".bias")
    values["attention_output_bias"] = stored("attention_output", ".bias")
    values["mlp_bias"] = stored("gate", ".bias")
    values["tie_word_embeddings"] = not stored("head", ".weight")
    fields = Fields(values, "gguf", names)
    _add_layer_types(values, file.get(prefix + "attention.sliding_window_pattern"), fields)
    values["rope_parameters"] = _rope(given(_ROPE_KEYS), file)
    size = values.get("head_dim")
    if size is not None and file.get(prefix + "attention.value_length", size) != size:
        fields.complain(f"{prefix}attention.value_length is not {names['head_dim']}, {size}")
    return fields


def _rope(rope: dict[str, Any], file: GGUFFile) -> dict[str, Any]:
    if rope.get("rope_type") == "none":
        rope["rope_type"] = "default"
    for tensor, names in ROPE_FACTORS.items():
        if tensor in file.tensors:
            rope |= dict.fromkeys(names, file.dequantize(tensor).flatten().tolist())
            rope["rope_type"] = "longrope"
            if len(names) == 2:  # llama 3's, written out: nothing else is scaled
                rope["attention_factor"] = 1.0
    if rope.get("rope_type") == "yarn":
        # Here it is what the usual factor is multiplied by.
        rope["extra_attention_factor"] = rope.pop("attention_factor", 1.0)
    return rope


def _add_layer_types(values: dict[str, Any], pattern: Any, fields: Fields) -> None:
    """The pattern is a flag for each layer, or n: every n-th layer sees everything."""
    kinds = ("full_attention", "sliding_attention")
    layers = values.get("num_hidden_layers")
    if isinstance(pattern, list):
        values["layer_types"] = [kinds[bool(slides)] for slides in pattern]
    elif type(pattern) is int and pattern > 0 and type(layers) is int and layers < 1 << 16:
        values["layer_types"] = [kinds[(i + 1) % pattern != 0] for i in range(layers)]
    elif pattern is not None:
        fields.complain(f"the sliding window pattern is {pattern!r}, neither a list nor a positive integer")
