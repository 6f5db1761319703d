"""GGUF files of transformers' models, written as llama.cpp's converter writes them.

Names of tensors are llama.cpp's own (the `gguf` package maps them); what it does to the values of each
family stands here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe", "gemma2": "gemma2", "gemma3": "gemma3", "phi3": "phi3", "olmo2": "olmo2",
    "granite": "granite", "smollm3": "smollm3",
}  # fmt: skip
INTERLEAVED = ("llama", "mistral", "mixtral", "granite", "smollm3")  # rotary halves of query and key
# Metadata beside the sizes that all have: GGUF's key -> transformers' attribute.
EXTRA = {
    "mistral": {"attention.sliding_window": "sliding_window"},
    "mixtral": {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    "qwen3_moe": {
        "expert_count": "num_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
    },
    "gemma2": {
        "attention.sliding_window": "sliding_window",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    },
    "gemma3": {"attention.sliding_window": "sliding_window"},
    "phi3": {"attention.sliding_window": "sliding_window"},
    "granite": {
        "attention.scale": "attention_multiplier",
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
    },
}


def write_gguf(
    path: Path,
    family: str,
    model: Any,
    *,
    kind: str = "F32",
    stacked: bool = True,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
) -> Path:
    """`metadata` is added or, where None, left out; `stacked` is how experts are kept."""
    config, arch = model.config, ARCHITECTURES[family]
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    values: dict[str, Any] = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": size,
        "attention.value_length": size,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": int(size * rope.get("partial_rotary_factor", 1.0)),
        "vocab_size": config.vocab_size,
        **{key: getattr(config, name) for key, name in EXTRA.get(family, {}).items()},
        **(metadata or {}),
    }
    writer = gguf.GGUFWriter(path, arch)
    # transformers asks for one that is in the vocabulary.
    writer.add_pad_token_id(0)
    for key, value in values.items():
        if value is not None:
            writer.add_key_value(f"{arch}.{key}", value, gguf.GGUFValueType.get_type(value))
    named = {**_tensors(family, model, arch, stacked), **(tensors or {})}
    for name, rows in named.items():
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        wide = rows.ndim > 1 and "ffn_gate_inp" not in name
        stored = gguf.GGMLQuantizationType[kind if wide else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(rows, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(family: str, model: Any, arch: str, stacked: bool) -> dict[str, np.ndarray]:
    config = model.config
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, arch.upper()), config.num_hidden_layers)
    found: dict[str, np.ndarray] = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        rows = tensor.float().numpy()
        if match := re.fullmatch(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up|down)_proj", name):
            found |= _expert_tensors(int(match[1]), match[2], rows, stacked)
            continue
        if family.startswith("gemma") and name.endswith("norm.weight"):
            rows = rows + 1
        if family in INTERLEAVED and (match := re.search(r"\.([qk])_proj\.", name)):
            heads = config.num_attention_heads if match[1] == "q" else config.num_key_value_heads
            rows = rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        found[stored] = rows
    return found


def _expert_tensors(layer: int, part: str, rows: np.ndarray, stacked: bool) -> dict[str, np.ndarray]:
    if part == "down":
        parts = {"down": rows}
    else:
        gate, up = np.split(rows, 2, axis=1)
        parts = {"gate": gate, "up": up}
    if stacked:
        return {f"blk.{layer}.ffn_{name}_exps.weight": values for name, values in parts.items()}
    return {
        f"blk.{layer}.ffn_{name}.{expert}.weight": matrix
        for name, values in parts.items()
        for expert, matrix in enumerate(values)
    }
