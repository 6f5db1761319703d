"""What an architecture file must tell: how to read its shape, and what its tensors are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.engine.models.config import DecoderConfig

# Our name of each tensor of a dense decoder -> (safetensors name, GGUF name); {i} is the layer.
DENSE_TENSORS: Mapping[str, tuple[str, str]] = {
    "embedding": ("model.embed_tokens", "token_embd"),
    "attention_norm": ("model.layers.{i}.input_layernorm", "blk.{i}.attn_norm"),
    "query": ("model.layers.{i}.self_attn.q_proj", "blk.{i}.attn_q"),
    "key": ("model.layers.{i}.self_attn.k_proj", "blk.{i}.attn_k"),
    "value": ("model.layers.{i}.self_attn.v_proj", "blk.{i}.attn_v"),
    "attention_output": ("model.layers.{i}.self_attn.o_proj", "blk.{i}.attn_output"),
    "mlp_norm": ("model.layers.{i}.post_attention_layernorm", "blk.{i}.ffn_norm"),
    "gate": ("model.layers.{i}.mlp.gate_proj", "blk.{i}.ffn_gate"),
    "up": ("model.layers.{i}.mlp.up_proj", "blk.{i}.ffn_up"),
    "down": ("model.layers.{i}.mlp.down_proj", "blk.{i}.ffn_down"),
    "final_norm": ("model.norm", "output_norm"),
    "head": ("lm_head", "output"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    gguf_name: str
    class_name: str  # in config.json's "architectures"
    config_from_json: Callable[[dict[str, Any]], DecoderConfig]
    config_from_gguf: Callable[[Mapping[str, Any]], DecoderConfig]
    tensors: Mapping[str, tuple[str, str]]
    # llama.cpp's converter interleaves the two rotary halves of query and key rows for some families.
    gguf_interleaves_rotary: bool = False
