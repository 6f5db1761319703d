"""Files that cannot be run: one sentence that says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.models.loader import load_decoder
from penstock.errors import ConfigError, ModelError
from tests.engine.models.test_llama import make_llama

CPU = torch.device("cpu")


def edit_config(path: Path, **changes: object) -> None:
    file = path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_an_unknown_architecture_names_the_known_ones_and_the_way_out(tmp_path: Path) -> None:
    make_llama(tmp_path)
    edit_config(tmp_path, architectures=["MambaForCausalLM"])
    with pytest.raises(ModelError, match=r"MambaForCausalLM.*LlamaForCausalLM.*gateway"):
        load_decoder(tmp_path, CPU, "auto")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": None}, "none given"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "rope scaling 'yarn'"),
        ({"hidden_act": "gelu"}, "activation 'silu'"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized with awq"),
        ({"hidden_size": 64}, "shape"),
        ({"num_key_value_heads": 4}, "not a multiple"),
        ({"num_hidden_layers": 4}, "no tensor 'model.layers.3"),
        ({"num_hidden_layers": -1}, "positive integer"),
        ({"vocab_size": "many"}, "positive integer"),
        ({"num_attention_heads": 0, "head_dim": None}, "makes no sense"),
        ({"architectures": [1]}, "list of class names"),
        ({"architectures": "LlamaForCausalLM"}, "list of class names"),
        ({"quantization_config": "gptq"}, "quantized with gptq"),
        ({"rope_parameters": "llama3"}, "makes no sense"),
        ({"rope_parameters": [1]}, "makes no sense"),
        ({"rope_parameters": {"rope_type": "linear", "factor": "x"}}, "positive number"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "does not give 'low_freq_factor'"),
        ({"rope_theta": "abc"}, "positive number"),
        ({"rms_norm_eps": "x"}, "positive number"),
        ({"rms_norm_eps": -1.0}, "positive number"),
        ({"intermediate_size": 10**13}, "shape"),
        ({"vocab_size": 10**12}, "shape"),
        ({"tie_word_embeddings": True, "attention_bias": True}, "no tensor .*q_proj.bias"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    make_llama(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ModelError, match=message):
        load_decoder(tmp_path, CPU, "auto")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    make_llama(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, file)
    with pytest.raises(ModelError, match=r"no tensor 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        load_decoder(tmp_path, CPU, "auto")


def test_an_unknown_dtype_is_refused(tmp_path: Path) -> None:
    make_llama(tmp_path)
    with pytest.raises(ConfigError, match="dtype must be auto"):
        load_decoder(tmp_path, CPU, "int3")


def test_an_output_matrix_is_not_made_up(tmp_path: Path) -> None:
    make_llama(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["lm_head.weight"]
    save_file(tensors, file)
    with pytest.raises(ModelError, match=r"no tensor 'lm_head\.weight'"):
        load_decoder(tmp_path, CPU, "auto")


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.q_norm.weight"]
)
def test_tensors_without_a_place_are_refused_instead_of_ignored(name: str, tmp_path: Path) -> None:
    make_llama(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({**load_file(file), name: torch.zeros(48)}, file)
    with pytest.raises(ModelError, match=f"1 tensors .* first '{name}'"):
        load_decoder(tmp_path, CPU, "auto")


def test_a_context_beyond_all_memory_is_shortened_to_what_the_cache_holds(tmp_path: Path) -> None:
    make_llama(tmp_path, max_position_embeddings=2**40)
    engine = EngineCore(EngineConfig(model=str(tmp_path), kv_cache_memory=1 << 20))
    assert engine.info.max_model_len == engine.info.num_blocks * engine.info.block_size
