"""Small random models of every architecture, made and saved by transformers, which is the reference."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

VOCAB = 199
WINDOW = 24  # far shorter than the prompts, and than a tile of attention
# Lengths below, at and beyond the window and one and two tiles.
LENGTHS = (1, 5, 33, 130, 270)
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 72,  # no multiple of what a CPU computes at once
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,  # large enough for logits that differ
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 1.5, 2.0, 4.0, 6.0, 8.0],
    "rope_theta": 10000.0,
}
PATTERN = ["sliding_attention", "full_attention", "sliding_attention"]


@dataclass(frozen=True)
class Variant:
    """A family's switches in one position."""

    settings: dict[str, Any] = field(default_factory=dict)
    # Where transformers rotates by a sequence's length: the longest sequence, and prompts that agree.
    positions: int | None = None
    lengths: tuple[int, ...] = LENGTHS


@dataclass(frozen=True)
class Family:
    model: str  # transformers' classes
    config: str
    variants: dict[str, Variant]
    tolerance: float = 1e-4


def _of(**settings: Any) -> Variant:
    return Variant(settings)


FAMILIES: dict[str, Family] = {
    "llama": Family(
        "LlamaForCausalLM",
        "LlamaConfig",
        {
            "plain": _of(),
            "yarn": _of(rope_parameters=YARN),
            "yarn, all of it": _of(
                rope_parameters={**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False,
                                 "mscale": 0.7, "mscale_all_dim": 1.3}
            ),
            "yarn with its attention factor": _of(rope_parameters={**YARN, "attention_factor": 0.8}),
            "dynamic rope within the context": _of(
                rope_parameters={"rope_type": "dynamic", "factor": 8.0, "rope_theta": 10000.0}
            ),
            "dynamic rope beyond the context": Variant(
                {
                    "max_position_embeddings": 64,
                    "rope_parameters": {"rope_type": "dynamic", "factor": 8.0, "rope_theta": 10000.0},
                },
                positions=270,
                lengths=(270, 270),
            ),
        },
    ),
    "mistral": Family(
        "MistralForCausalLM",
        "MistralConfig",
        {
            "window": _of(sliding_window=WINDOW),
            "window of a tile": _of(sliding_window=128),
            "window of one": _of(sliding_window=1),
            "no window": _of(sliding_window=None, head_dim=16),
        },
    ),
    "mixtral": Family(
        "MixtralForCausalLM",
        "MixtralConfig",
        {
            "two of four": _of(num_local_experts=4, num_experts_per_tok=2),
            "window": _of(num_local_experts=5, num_experts_per_tok=3, sliding_window=WINDOW),
            "all experts": _of(num_local_experts=3, num_experts_per_tok=3),
        },
        1e-3,
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM",
        "Qwen2Config",
        {
            "plain": _of(),
            "late windows": _of(use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
            "layer types": _of(use_sliding_window=True, sliding_window=WINDOW, layer_types=PATTERN),
            "tied, yarn": _of(tie_word_embeddings=True, rope_parameters=YARN),
        },
    ),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        "Qwen3Config",
        {
            "own head size": _of(head_dim=16),
            "windows and biases": _of(
                head_dim=12, attention_bias=True, use_sliding_window=True, sliding_window=WINDOW,
                layer_types=PATTERN,
            ),
        },
    ),
    "qwen3_moe": Family(
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        {
            "normalized": _of(
                num_experts=6, num_experts_per_tok=2, moe_intermediate_size=40, norm_topk_prob=True,
                head_dim=16,
            ),
            "some dense layers": _of(
                num_experts=4, num_experts_per_tok=3, moe_intermediate_size=40, norm_topk_prob=False,
                mlp_only_layers=[1],
            ),
            "every other layer, window": _of(
                num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, decoder_sparse_step=2,
                use_sliding_window=True, sliding_window=WINDOW, attention_bias=True,
            ),
        },
        1e-3,
    ),
    "gemma2": Family(
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {
            "plain": _of(head_dim=16, sliding_window=WINDOW, query_pre_attn_scalar=20),
            "low caps": _of(
                head_dim=12, sliding_window=WINDOW, attn_logit_softcapping=2.0,
                final_logit_softcapping=3.0, attention_bias=True,
            ),
            "no caps, untied": _of(
                head_dim=12, sliding_window=WINDOW, attn_logit_softcapping=None,
                final_logit_softcapping=None, tie_word_embeddings=False, layer_types=PATTERN[::-1],
            ),
        },
    ),
    "gemma3": Family(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {
            "five to one": _of(head_dim=16, sliding_window=WINDOW, num_hidden_layers=6),
            "scaled rope": _of(
                head_dim=12, sliding_window=WINDOW, layer_types=PATTERN, query_pre_attn_scalar=30,
                final_logit_softcapping=5.0,
                rope_parameters={
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
                },
            ),
        },
    ),
    "phi3": Family(
        "Phi3ForCausalLM",
        "Phi3Config",
        {
            "plain": _of(),
            "window, part of a head": _of(sliding_window=WINDOW, partial_rotary_factor=0.5),
            "long rope": Variant(
                {"original_max_position_embeddings": 64, "rope_parameters": LONG},
                positions=512,
                lengths=(65, 130, 270),
            ),
            "long rope within the first context": Variant(
                {"original_max_position_embeddings": 64, "rope_parameters": LONG},
                positions=64,
                lengths=(1, 33, 64),
            ),
            "long rope of part of a head, tied": Variant(
                {
                    "original_max_position_embeddings": 64,
                    "tie_word_embeddings": True,
                    "hidden_size": 64,
                    "rope_parameters": {**LONG, "partial_rotary_factor": 0.75, "attention_factor": 1.2},
                },
                positions=512,
                lengths=(65, 270),
            ),
        },
    ),
    "olmo2": Family(
        "Olmo2ForCausalLM",
        "Olmo2Config",
        {"plain": _of(), "biases": _of(attention_bias=True, num_key_value_heads=4)},
    ),
    "granite": Family(
        "GraniteForCausalLM",
        "GraniteConfig",
        {
            "multipliers": _of(
                attention_multiplier=0.4, embedding_multiplier=3.0, residual_multiplier=0.22,
                logits_scaling=2.5,
            ),
            "biases, tied": _of(
                attention_multiplier=0.2, residual_multiplier=0.5, attention_bias=True, mlp_bias=True,
                tie_word_embeddings=True,
            ),
        },
    ),
    "smollm3": Family(
        "SmolLM3ForCausalLM",
        "SmolLM3Config",
        {
            "every fourth": _of(num_hidden_layers=4),
            "its own choice, window": _of(
                no_rope_layers=[0, 1, 0], use_sliding_window=True, sliding_window=WINDOW,
                tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
            ),
            "yarn": _of(no_rope_layer_interval=2, rope_parameters=YARN),
        },
    ),
}  # fmt: skip
# The variant of each family that has the most of what the family is known for.
TYPICAL = {name: next(iter(family.variants)) for name, family in FAMILIES.items()}


def make_config(family: str, variant: str, **overrides: Any) -> Any:
    chosen = FAMILIES[family]
    settings = {**SMALL, **chosen.variants[variant].settings, **overrides}
    return getattr(transformers, chosen.config)(**settings)


def make(family: str, variant: str, path: Path | None = None, **overrides: Any) -> Any:
    """transformers' own model, with weights that make every part of it matter; saved if a path is given."""
    torch.manual_seed(0)
    config = make_config(family, variant, **overrides)
    model = getattr(transformers, FAMILIES[family].model)(config).float().eval()
    model.set_attn_implementation("eager")  # some versions' faster one leaves soft caps out
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter += torch.randn_like(parameter) * 0.2
            elif name.endswith("bias"):
                parameter.normal_(mean=0.2, std=0.2)
            elif "mlp.gate.weight" in name:  # routers, far enough from ties
                parameter.normal_(std=0.5)
    if path is not None:
        model.save_pretrained(path)
    return model


def read(path: Path, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """transformers' own reading of a file."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation="eager", **options
    )
    return model.eval()


def edit_config(path: Path, **changes: object) -> None:
    """Change fields of config.json; `...` removes one."""
    file = path / "config.json"
    config = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not ...}))


def prompts_of(lengths: tuple[int, ...]) -> list[list[int]]:
    rng = random.Random(1)
    return [[rng.randrange(VOCAB) for _ in range(length)] for length in lengths]


def reference_logits(model: Any, prompts: list[list[int]]) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model(torch.tensor([prompt]), use_cache=False).logits[0] for prompt in prompts]
