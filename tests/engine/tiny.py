"""A small random llama on the disk, made without any library that knows llamas.

Large enough that its tokens depend on the whole prompt, small enough to load in milliseconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "torch_dtype": "float32",
}


def save_tiny_llama(path: Path, *, seed: int = 0, shards: int = 1, **overrides: Any) -> Path:
    """Write config.json and its weights to the folder `path`; overrides are keys of config.json."""
    config = {**TINY, **overrides}
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=1))
    tensors = tiny_tensors(config, seed)
    if shards == 1:
        save_file(tensors, path / "model.safetensors")
        return path
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = names[number::shards]
        save_file({name: tensors[name] for name in part}, path / file)
        weight_map.update(dict.fromkeys(part, file))
    index = {"metadata": {}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def tiny_tensors(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Random weights under their usual names, scaled so that activations neither die nor explode."""
    random = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, config["torch_dtype"])
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    query, key = heads * head_dim, config["num_key_value_heads"] * head_dim

    def matrix(rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns, generator=random) / columns**0.5).to(dtype)

    def vector(size: int, mean: float) -> Tensor:
        return (mean + 0.1 * torch.randn(size, generator=random)).to(dtype)

    # Embeddings of unit size: the layers must matter as much as the token itself.
    tensors = {"model.embed_tokens.weight": torch.randn(config["vocab_size"], hidden, generator=random)}
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].to(dtype)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        shapes = {
            "self_attn.q_proj": (query, hidden),
            "self_attn.k_proj": (key, hidden),
            "self_attn.v_proj": (key, hidden),
            "self_attn.o_proj": (hidden, query),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        for part, shape in shapes.items():
            tensors[f"{name}.{part}.weight"] = matrix(*shape)
            if config["attention_bias" if part.startswith("self_attn") else "mlp_bias"]:
                tensors[f"{name}.{part}.bias"] = vector(shape[0], 0.0)
        tensors[f"{name}.input_layernorm.weight"] = vector(hidden, 1.0)
        tensors[f"{name}.post_attention_layernorm.weight"] = vector(hidden, 1.0)
    tensors["model.norm.weight"] = vector(hidden, 1.0)
    if not config["tie_word_embeddings"]:
        # Four times as steep as usual, so that a greedy choice is not decided by rounding.
        tensors["lm_head.weight"] = 4.0 * matrix(config["vocab_size"], hidden)
    return tensors
