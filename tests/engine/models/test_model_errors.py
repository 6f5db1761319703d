"""Files that cannot be run: one sentence that says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

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
        load_decoder(tmp_path, CPU, "auto", None)


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
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    make_llama(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ModelError, match=message):
        load_decoder(tmp_path, CPU, "auto", None)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    make_llama(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, file)
    with pytest.raises(ModelError, match=r"no tensor 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        load_decoder(tmp_path, CPU, "auto", None)


def test_an_unknown_dtype_is_refused(tmp_path: Path) -> None:
    make_llama(tmp_path)
    with pytest.raises(ConfigError, match="dtype must be auto"):
        load_decoder(tmp_path, CPU, "int3", None)
