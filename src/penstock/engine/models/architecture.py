"""What an architecture file must tell: how to read its shape, and what its tensors are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields

# What the safetensors names begin with in a model that has an output matrix; bare models leave it out.
PREFIX = "model."
# Our name of each tensor -> (safetensors name, GGUF name); {i} is the layer. Which of them a model has
# follows from its configuration.
TENSORS: Mapping[str, tuple[str, str]] = {
    "embedding": ("model.embed_tokens", "token_embd"),
    "attention_norm": ("model.layers.{i}.input_layernorm", "blk.{i}.attn_norm"),
    "query": ("model.layers.{i}.self_attn.q_proj", "blk.{i}.attn_q"),
    "key": ("model.layers.{i}.self_attn.k_proj", "blk.{i}.attn_k"),
    "value": ("model.layers.{i}.self_attn.v_proj", "blk.{i}.attn_v"),
    "query_norm": ("model.layers.{i}.self_attn.q_norm", "blk.{i}.attn_q_norm"),
    "key_norm": ("model.layers.{i}.self_attn.k_norm", "blk.{i}.attn_k_norm"),
    "attention_output": ("model.layers.{i}.self_attn.o_proj", "blk.{i}.attn_output"),
    "mlp_norm": ("model.layers.{i}.post_attention_layernorm", "blk.{i}.ffn_norm"),
    "gate": ("model.layers.{i}.mlp.gate_proj", "blk.{i}.ffn_gate"),
    "up": ("model.layers.{i}.mlp.up_proj", "blk.{i}.ffn_up"),
    "down": ("model.layers.{i}.mlp.down_proj", "blk.{i}.ffn_down"),
    "final_norm": ("model.norm", "output_norm"),
    "head": ("lm_head", "output"),
}
# Families with norms after attention and MLP call the norm before the MLP differently.
POST_NORMS: Mapping[str, tuple[str, str]] = {
    "attention_post_norm": ("model.layers.{i}.post_attention_layernorm", "blk.{i}.post_attention_norm"),
    "mlp_norm": ("model.layers.{i}.pre_feedforward_layernorm", "blk.{i}.ffn_norm"),
    "mlp_post_norm": ("model.layers.{i}.post_feedforward_layernorm", "blk.{i}.post_ffw_norm"),
}
# {e} is the expert; GGUF files stack the experts of a layer in one tensor.
EXPERT_TENSORS: Mapping[str, tuple[str, str]] = {
    "router": ("model.layers.{i}.mlp.gate", "blk.{i}.ffn_gate_inp"),
    "expert_gate": ("model.layers.{i}.mlp.experts.{e}.gate_proj", "blk.{i}.ffn_gate_exps"),
    "expert_up": ("model.layers.{i}.mlp.experts.{e}.up_proj", "blk.{i}.ffn_up_exps"),
    "expert_down": ("model.layers.{i}.mlp.experts.{e}.down_proj", "blk.{i}.ffn_down_exps"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    name: str
    class_name: str  # in config.json's "architectures"
    gguf_name: str | None  # in "general.architecture"; None: such files go by another family's name
    config: Callable[[Fields], DecoderConfig]
    tensors: Mapping[str, tuple[str, str]] = field(default_factory=lambda: TENSORS)
    # llama.cpp's converter interleaves the two rotary halves of query and key rows for some families.
    gguf_interleaves_rotary: bool = False
    bare_class_name: str | None = None  # of the model without its head; None: ...Model for ...ForCausalLM

    @property
    def class_names(self) -> tuple[str, str]:
        """Of the whole model, and of the bare one."""
        return self.class_name, self.bare_class_name or self.class_name.replace("ForCausalLM", "Model")
