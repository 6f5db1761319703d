"""Files that cannot be run: everything that is wrong with them, in one sentence or three."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.layers.rotary import frequencies
from penstock.engine.models.fields import Fields
from penstock.engine.models.registry import by_class_names
from penstock.engine.models.weights import read_config
from penstock.errors import ConfigError, ModelError
from tests.engine.models.families import FAMILIES, edit_config, make, make_config
from tests.engine.models.forward import all_logits
from tests.engine.models.loading import load_decoder
from tests.engine.models.nonsense import INF, NAN, NONSENSE
from tests.engine.models.test_llama import make_llama, prompts_of

CPU = torch.device("cpu")


def edit_tensors(path: Path, **changes: torch.Tensor | None) -> None:
    """Change tensors, or remove those given as None."""
    file = path / "model.safetensors"
    tensors: dict[str, Any] = {**load_file(file), **changes}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, file)


def test_an_unknown_architecture_names_the_known_ones_and_the_way_out(tmp_path: Path) -> None:
    make_llama(tmp_path)
    edit_config(tmp_path, architectures=["MambaForCausalLM"])
    with pytest.raises(ModelError, match=r"MambaForCausalLM.*LlamaForCausalLM.*gateway"):
        load_decoder(tmp_path, CPU, "float32")


ROPE = "rope_parameters"
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0}
LONG = {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0] * 4}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": None}, "none given"),
        ({"architectures": [1]}, "list of class names"),
        ({"architectures": "LlamaForCausalLM"}, "list of class names"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized with awq"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantized with fp8"),
        ({"quantization_config": "gptq"}, "quantized with gptq"),
        ({"hidden_act": "mish"}, "activation 'mish' is not known"),
        ({"hidden_act": 1}, "'hidden_act' is 1, not a string"),
        ({"vocab_size": "many"}, "'vocab_size' is 'many', not an integer"),
        ({"vocab_size": True}, "'vocab_size' is True, not an integer"),
        ({"vocab_size": 199.0}, "not an integer"),
        ({"vocab_size": 10**30}, "not an integer from 1 to"),
        ({"num_hidden_layers": -1}, "'num_hidden_layers' is -1, not an integer from 1 to 1024"),
        ({"num_hidden_layers": 10**9}, "not an integer from 1 to 1024"),
        ({"num_attention_heads": 0, "head_dim": None}, "'num_attention_heads' is 0"),
        ({"num_attention_heads": 5, "head_dim": None}, "48 is not a multiple of 5 heads"),
        ({"num_key_value_heads": 4}, "6 heads are not a multiple of 4 KV heads"),
        ({"head_dim": 7}, "rotary embedding of 7 dimensions"),
        ({"rms_norm_eps": "x"}, "'rms_norm_eps' is 'x', not a positive number"),
        ({"rms_norm_eps": -1.0}, "not a positive number"),
        ({"rms_norm_eps": NAN}, "'rms_norm_eps' is nan"),
        ({"rms_norm_eps": INF}, "'rms_norm_eps' is inf"),
        ({"rms_norm_eps": True}, "'rms_norm_eps' is True"),
        ({"attention_bias": "yes"}, "'attention_bias' is 'yes', not true or false"),
        ({"tie_word_embeddings": 1}, "'tie_word_embeddings' is 1, not true or false"),
        ({"rope_theta": "abc", ROPE: None}, "'rope_theta' is 'abc', not a number above 1"),
        ({ROPE: {"rope_theta": 0.5}}, "'rope_theta' is 0.5, not a number above 1"),
        ({ROPE: "llama3"}, "'rope_parameters' is 'llama3', not an object"),
        ({ROPE: [1]}, r"'rope_parameters' is \[1\], not an object"),
        ({ROPE: {"rope_type": "linear"}}, "'factor' is missing"),
        ({ROPE: {"rope_type": "linear", "factor": "x"}}, "'factor' is 'x', not a positive number"),
        ({ROPE: {"rope_type": "dynamic", "factor": INF}}, "'factor' is inf"),
        ({ROPE: {"rope_type": "mrope", "factor": 2.0}}, "rope scaling 'mrope' is not known here"),
        ({ROPE: {"rope_type": 3}}, "'rope_type' is 3, not a string"),
        ({ROPE: LLAMA3}, "low_freq_factor, 4, is not below high_freq_factor, 4"),
        ({ROPE: {"rope_type": "yarn", "factor": NAN}}, "'factor' is nan"),
        ({ROPE: {"rope_type": "yarn", "factor": 2.0, "truncate": 3}}, "'truncate' is 3"),
        ({ROPE: LONG}, "1 rope factors for 4 rotary frequencies"),
        ({ROPE: {**LONG, "short_factor": [1.0, -1.0]}}, "not a list of positive numbers"),
        ({ROPE: {**LONG, "original_max_position_embeddings": 0}}, "'original_max_position_embeddings' is 0"),
        ({"partial_rotary_factor": 0.01}, "rotary embedding of 0 dimensions"),
        ({"partial_rotary_factor": 2.0}, "rotary embedding of 16 dimensions does not fit a head of 8"),
    ],
)  # fmt: skip
def test_a_description_that_makes_no_sense_is_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    make_llama(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ModelError, match=message):
        load_decoder(tmp_path, CPU, "float32")


@pytest.mark.parametrize(
    ("family", "variant", "changes", "message"),
    [
        ("mistral", "window", {"sliding_window": 0}, "'sliding_window' is 0, not an integer from 1"),
        ("mistral", "window", {"sliding_window": "all"}, "'sliding_window' is 'all'"),
        ("qwen2", "layer types", {"layer_types": ["full_attention"]}, "1 entries for 3 layers"),
        ("qwen2", "layer types", {"layer_types": ["full_attention"] * 2 + ["linear"]}, "type 'linear'"),
        ("qwen2", "layer types", {"layer_types": "full"}, "not a list of str"),
        ("qwen2", "layer types", {"sliding_window": None}, "sliding attention, but no sliding_window"),
        ("qwen2", "layer types", {"use_sliding_window": False}, "but no sliding_window"),
        ("gemma2", "plain", {"query_pre_attn_scalar": 0}, "'query_pre_attn_scalar' is 0"),
        ("gemma2", "plain", {"attn_logit_softcapping": -1.0}, "'attn_logit_softcapping' is -1.0"),
        ("gemma3", "five to one", {"use_bidirectional_attention": True}, "attention both ways"),
        ("granite", "multipliers", {"logits_scaling": 0}, "'logits_scaling' is 0, not a positive"),
        ("smollm3", "every fourth", {"no_rope_layers": [1]}, "1 entries for 4 layers"),
        ("mixtral", "two of four", {"num_experts_per_tok": 5}, "5 experts for each token, but only 4"),
        ("mixtral", "two of four", {"num_local_experts": ...}, "'num_experts' is missing"),
        ("mixtral", "two of four", {"num_local_experts": 10**12}, "not an integer from 1 to 1024"),
        ("qwen3_moe", "normalized", {"mlp_only_layers": 3}, "'mlp_only_layers' is 3, not a list"),
        ("qwen3_moe", "normalized", {"decoder_sparse_step": 0}, "'decoder_sparse_step' is 0"),
    ],
)
def test_a_switch_that_makes_no_sense_is_refused(
    family: str, variant: str, changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    make(family, variant, tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ModelError, match=message):
        load_decoder(tmp_path, CPU, "float32")


def test_all_missing_and_senseless_fields_are_named(tmp_path: Path) -> None:
    make_llama(tmp_path)
    edit_config(tmp_path, vocab_size=..., hidden_size=..., rms_norm_eps=-1, hidden_act="mish")
    with pytest.raises(ModelError) as error:
        load_decoder(tmp_path, CPU, "float32")
    for part in ("'vocab_size' is missing", "'hidden_size' is missing", "'rms_norm_eps' is -1", "'mish'"):
        assert part in str(error.value)
    assert str(error.value).count("is missing") == 2


def test_all_contradictions_are_named(tmp_path: Path) -> None:
    make_llama(tmp_path)
    edit_config(tmp_path, num_key_value_heads=4, head_dim=7)
    with pytest.raises(ModelError, match=r"6 heads .* 4 KV heads; .* 7 dimensions"):
        load_decoder(tmp_path, CPU, "float32")


def test_tensors_missing_misshapen_and_unexpected_are_all_named(tmp_path: Path) -> None:
    make_llama(tmp_path)
    edit_tensors(
        tmp_path,
        **{
            "model.layers.1.mlp.up_proj.weight": None,
            "model.norm.weight": None,
            "model.layers.0.self_attn.q_proj.weight": torch.zeros(48, 40),
            "model.layers.2.mlp.down_proj.weight": torch.zeros(112, 48),
            "model.layers.0.self_attn.q_norm.weight": torch.zeros(8),
            "model.layers.0.self_attn.q_proj.bias": torch.zeros(48),
        },
    )
    with pytest.raises(ModelError) as error:
        load_decoder(tmp_path, CPU, "float32")
    for part in (
        "It lacks 'model.norm.weight', 'model.layers.1.mlp.up_proj.weight'.",
        "'model.layers.0.self_attn.q_proj.weight' has [48, 40] instead of [48, 48]",
        "'model.layers.2.mlp.down_proj.weight' has [112, 48] instead of [48, 112]",
        "no place for 'model.layers.0.self_attn.q_norm.weight', 'model.layers.0.self_attn.q_proj.bias'.",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"num_hidden_layers": 5},
            r"lacks 'model\.layers\.3-4\.input_layernorm\.weight' \(2\), '.*3-4\.mlp\.down",
        ),
        ({"num_hidden_layers": 1000}, r"lacks 'model\.layers\.3-999\.input_layernorm\.weight' \(997\),"),
        (
            {"num_hidden_layers": 2},
            r"no place for 'model\.layers\.2\.input.* 'model\.layers\.2\.self_attn\.v_proj\.weight'\.",
        ),
        (
            {"hidden_size": 64},
            r"instead of \[199, 64\].*'model\.layers\.0-2\.mlp\.up_proj\.weight' \(3\) has",
        ),
        ({"intermediate_size": 10**13}, r"instead of \[10000000000000, 48\]"),
        ({"vocab_size": 10**12}, r"instead of \[1000000000000, 48\]"),
        ({"attention_bias": True}, r"lacks .*q_proj\.bias"),
    ],
)
def test_a_description_of_another_size_is_refused_before_anything_is_allocated(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    make_llama(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ModelError, match=message):
        load_decoder(tmp_path, CPU, "float32")


def test_experts_missing_or_too_many_are_named(tmp_path: Path) -> None:
    make("mixtral", "two of four", tmp_path)
    edit_config(tmp_path, num_local_experts=5)
    with pytest.raises(ModelError, match=r"lacks 'model\.layers\.0-2\.block_sparse_moe\.experts\.4\.w1"):
        load_decoder(tmp_path, CPU, "float32")
    edit_config(tmp_path, num_local_experts=3)
    with pytest.raises(
        ModelError, match=r"no place for 'model\.layers\.0-2\.block_sparse_moe\.experts\.3\.w1"
    ):
        load_decoder(tmp_path, CPU, "float32")


def test_an_unknown_precision_is_refused() -> None:
    known = "auto, int8, float32, bfloat16, float16, fp8"
    with pytest.raises(ConfigError, match=f"precision must be one of {known}, got 'int3'"):
        EngineConfig(model="x", precision="int3")


def test_an_output_matrix_is_not_made_up(tmp_path: Path) -> None:
    make_llama(tmp_path)
    edit_tensors(tmp_path, **{"lm_head.weight": None})
    with pytest.raises(ModelError, match=r"lacks 'lm_head\.weight'"):
        load_decoder(tmp_path, CPU, "float32")


def test_a_family_that_ties_by_default_needs_neither_output_matrix_nor_flag(tmp_path: Path) -> None:
    make("gemma2", "plain", tmp_path)
    edit_config(tmp_path, tie_word_embeddings=...)
    load_decoder(tmp_path, CPU, "float32")
    edit_config(tmp_path, tie_word_embeddings=False)
    with pytest.raises(ModelError, match=r"lacks 'lm_head\.weight'"):
        load_decoder(tmp_path, CPU, "float32")


def test_tied_weights_are_used_whatever_output_matrix_lies_beside_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As transformers does; a difference is said."""
    make_llama(tmp_path, tie_word_embeddings=True)
    prompts = prompts_of(20)
    wanted = all_logits(load_decoder(tmp_path, CPU, "float32")[0], prompts, 20)[0]
    embedding = load_file(tmp_path / "model.safetensors")["model.embed_tokens.weight"]
    with caplog.at_level(logging.WARNING):
        edit_tensors(tmp_path, **{"lm_head.weight": embedding.clone()})
        assert torch.equal(all_logits(load_decoder(tmp_path, CPU, "float32")[0], prompts, 20)[0], wanted)
        assert not caplog.records
        edit_tensors(tmp_path, **{"lm_head.weight": embedding + 1})
        assert torch.equal(all_logits(load_decoder(tmp_path, CPU, "float32")[0], prompts, 20)[0], wanted)
    assert "'lm_head.weight'; it is not used" in caplog.text


def test_a_context_beyond_all_memory_is_shortened_to_what_the_cache_holds(tmp_path: Path) -> None:
    make_llama(tmp_path, max_position_embeddings=2**40)
    engine = EngineCore(EngineConfig(model=str(tmp_path), kv_cache_memory=1 << 20))
    assert engine.info.max_model_len == engine.info.num_blocks * engine.info.block_size


def test_more_than_the_context_may_be_asked_for_where_rope_scaling_stretches_it(tmp_path: Path) -> None:
    make("llama", "dynamic rope beyond the context", tmp_path)
    asked = EngineConfig(model=str(tmp_path), kv_cache_memory=1 << 22)
    assert EngineCore(asked).info.max_model_len == 64
    asked = EngineConfig(model=str(tmp_path), kv_cache_memory=1 << 22, max_model_len=512)
    assert EngineCore(asked).info.max_model_len == 512
    asked = EngineConfig(model=str(tmp_path), kv_cache_memory=1 << 22, max_model_len=513)
    with pytest.raises(ConfigError, match="the model's context is 512 tokens"):
        EngineCore(asked)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_nonsense_in_a_description_does_more_than_raise_a_model_error(family: str) -> None:
    """Every field, replaced by every kind of nonsense: a model that can be prepared, or a sentence."""
    accepted = 0
    for variant in FAMILIES[family].variants:
        described = json.loads(make_config(family, variant).to_json_string())
        architecture = by_class_names([FAMILIES[family].model])
        for name in described:
            for value in NONSENSE:
                try:
                    config = read_config(architecture, Fields({**described, name: value}), Path("model"))
                except ModelError:
                    continue
                accepted += 1
                for rope in {layer.rope for layer in config.layers} - {None}:
                    assert frequencies(rope, 600).isfinite().all()
    assert accepted > 100  # fields that do not matter, or may be left out
