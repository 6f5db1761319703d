"""The fields of released models' config.json that describe a decoder, as their publishers write them."""

from __future__ import annotations

from typing import Any

PHI_SHORT = [1.0 + 0.01 * i for i in range(48)]  # of the published length; the values are made up
PHI_LONG = [1.0 + 0.5 * i for i in range(48)]


def _of(
    architecture: str,
    model_type: str,
    sizes: tuple[int, int, int, int, int, int, int],
    eps: float = 1e-5,
    **others: Any,
) -> dict[str, Any]:
    """Sizes: vocabulary, hidden, intermediate, layers, heads, KV heads, context."""
    names = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
    )
    return {
        "architectures": [architecture],
        "model_type": model_type,
        **dict(zip(names, sizes, strict=True)),
        "rms_norm_eps": eps,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "initializer_range": 0.02,
        **others,
    }


RELEASED: dict[str, dict[str, Any]] = {
    "Llama 3.1 8B": _of(
        "LlamaForCausalLM", "llama", (128256, 4096, 14336, 32, 32, 8, 131072),
        hidden_act="silu", attention_bias=False, mlp_bias=False, pretraining_tp=1, rope_theta=500000.0,
        tie_word_embeddings=False, attention_dropout=0.0,
        rope_scaling={"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    ),
    "Vicuna 7B 16k": _of(
        "LlamaForCausalLM", "llama", (32000, 4096, 11008, 32, 32, 32, 4096),
        hidden_act="silu", rope_scaling={"factor": 4.0, "type": "linear"}, tie_word_embeddings=False,
    ),
    "Mistral 7B v0.1": _of(
        "MistralForCausalLM", "mistral", (32000, 4096, 14336, 32, 32, 8, 32768),
        hidden_act="silu", rope_theta=10000.0, sliding_window=4096, tie_word_embeddings=False,
    ),
    "Mistral Nemo": _of(
        "MistralForCausalLM", "mistral", (131072, 5120, 14336, 40, 32, 8, 131072),
        hidden_act="silu", rope_theta=1000000.0, sliding_window=None, head_dim=128,
        tie_word_embeddings=False,
    ),
    "Mixtral 8x7B": _of(
        "MixtralForCausalLM", "mixtral", (32000, 4096, 14336, 32, 32, 8, 32768),
        hidden_act="silu", rope_theta=1000000.0, sliding_window=None, num_local_experts=8,
        num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.02,
    ),
    "Qwen 2.5 7B": _of(
        "Qwen2ForCausalLM", "qwen2", (152064, 3584, 18944, 28, 28, 4, 32768), 1e-6,
        hidden_act="silu", rope_theta=1000000.0, sliding_window=131072, use_sliding_window=False,
        max_window_layers=28, tie_word_embeddings=False,
    ),
    "Qwen 2.5 7B, stretched as its card says": _of(
        "Qwen2ForCausalLM", "qwen2", (152064, 3584, 18944, 28, 28, 4, 32768), 1e-6,
        hidden_act="silu", rope_theta=1000000.0, sliding_window=131072, use_sliding_window=False,
        max_window_layers=28,
        rope_scaling={"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
    ),
    "Qwen 3 8B": _of(
        "Qwen3ForCausalLM", "qwen3", (151936, 4096, 12288, 36, 32, 8, 40960), 1e-6,
        attention_bias=False, head_dim=128, hidden_act="silu", max_window_layers=36, rope_scaling=None,
        rope_theta=1000000, sliding_window=None, use_sliding_window=False, tie_word_embeddings=False,
    ),
    "Qwen 3 30B A3B": _of(
        "Qwen3MoeForCausalLM", "qwen3_moe", (151936, 2048, 6144, 48, 32, 4, 40960), 1e-6,
        attention_bias=False, decoder_sparse_step=1, head_dim=128, hidden_act="silu", mlp_only_layers=[],
        max_window_layers=48, moe_intermediate_size=768, norm_topk_prob=True, num_experts=128,
        num_experts_per_tok=8, rope_scaling=None, rope_theta=1000000.0, sliding_window=None,
        use_sliding_window=False,
    ),
    "Gemma 2 9B": _of(
        "Gemma2ForCausalLM", "gemma2", (256000, 3584, 14336, 42, 16, 8, 8192), 1e-6,
        attention_bias=False, attn_logit_softcapping=50.0, cache_implementation="hybrid",
        final_logit_softcapping=30.0, head_dim=256, hidden_act="gelu_pytorch_tanh",
        hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=256, rope_theta=10000.0,
        sliding_window=4096, sliding_window_size=4096,
    ),
    "Gemma 3 1B": _of(
        "Gemma3ForCausalLM", "gemma3_text", (262144, 1152, 6912, 26, 4, 1, 32768), 1e-6,
        attention_bias=False, attn_logit_softcapping=None, cache_implementation="hybrid",
        final_logit_softcapping=None, head_dim=256, hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=256, rope_local_base_freq=10000, rope_scaling=None, rope_theta=1000000,
        sliding_window=512, sliding_window_pattern=6,
    ),
    "Phi 3 mini 4k": _of(
        "Phi3ForCausalLM", "phi3", (32064, 3072, 8192, 32, 32, 32, 4096),
        attention_bias=False, hidden_act="silu", original_max_position_embeddings=4096, rope_scaling=None,
        rope_theta=10000.0, sliding_window=2047, tie_word_embeddings=False,
    ),
    "Phi 3.5 mini": _of(
        "Phi3ForCausalLM", "phi3", (32064, 3072, 8192, 32, 32, 32, 131072),
        attention_bias=False, hidden_act="silu", original_max_position_embeddings=4096,
        rope_scaling={"long_factor": PHI_LONG, "short_factor": PHI_SHORT, "type": "longrope"},
        rope_theta=10000.0, sliding_window=262144, tie_word_embeddings=False,
    ),
    "Phi 4 mini": _of(
        "Phi3ForCausalLM", "phi3", (200064, 3072, 8192, 32, 24, 8, 131072),
        attention_bias=False, full_attn_mod=1, hidden_act="silu", interpolate_factor=1, lm_head_bias=False,
        mlp_bias=False, original_max_position_embeddings=4096, partial_rotary_factor=0.75,
        rope_scaling={"long_factor": PHI_LONG, "short_factor": PHI_SHORT, "type": "longrope"},
        rope_theta=10000.0, sliding_window=262144, tie_word_embeddings=True,
    ),
    "OLMo 2 7B": _of(
        "Olmo2ForCausalLM", "olmo2", (100352, 4096, 11008, 32, 32, 32, 4096), 1e-6,
        attention_bias=False, hidden_act="silu", rope_scaling=None, rope_theta=500000,
        tie_word_embeddings=False,
    ),
    "Granite 3.1 8B": _of(
        "GraniteForCausalLM", "granite", (49155, 4096, 12800, 40, 32, 8, 131072),
        attention_bias=False, attention_multiplier=0.0078125, embedding_multiplier=12.0, hidden_act="silu",
        logits_scaling=16.0, mlp_bias=False, residual_multiplier=0.22, rope_scaling=None,
        rope_theta=10000000.0, tie_word_embeddings=True,
    ),
    "SmolLM 3 3B": _of(
        "SmolLM3ForCausalLM", "smollm3", (128256, 2048, 11008, 36, 16, 4, 65536), 1e-6,
        attention_bias=False, hidden_act="silu", layer_types=["full_attention"] * 36,
        max_window_layers=28, mlp_bias=False, no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0] * 9,
        rope_scaling=None, rope_theta=5000000.0, sliding_window=None, use_sliding_window=False,
    ),
}  # fmt: skip
