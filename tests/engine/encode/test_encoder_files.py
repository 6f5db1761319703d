"""What an encoder's files may say, and what is said of files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from penstock.engine.config import EngineConfig
from penstock.engine.encode.core import EncoderCore
from penstock.engine.encode.families import ENCODERS
from penstock.engine.encode.weights import read_folder_config
from penstock.engine.models.common import MAX_LAYERS
from penstock.engine.opening import open_core
from penstock.engine.pooling import longest_input, stored_pooling
from penstock.errors import ConfigError, ModelError
from tests.engine.encode.encoders import CONFIGS, SHAPE, core, edit_config, encode, save
from tests.engine.models.nonsense import NONSENSE

TRANSFORMER = {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
DENSE = {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"}


def write_pooling(path: Path, config: dict[str, Any], modules: list[dict[str, Any]] | None = None) -> None:
    (path / "1_Pooling").mkdir(exist_ok=True)
    (path / "1_Pooling" / "config.json").write_text(json.dumps(config))
    if modules is not None:
        (path / "modules.json").write_text(json.dumps(modules))


def change_tensors(path: Path, edit: Any) -> None:
    tensors = load_file(path / "model.safetensors")
    edit(tensors)
    save_file(tensors, path / "model.safetensors")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_pooling_is_what_the_folder_says(config: dict[str, Any], expected: str, tmp_path: Path) -> None:
    save(tmp_path, "Bert")
    write_pooling(tmp_path, config, [TRANSFORMER, POOLING])
    assert core(tmp_path).info.pooling == expected
    assert core(tmp_path, pooling="mean").info.pooling == "mean"


def test_a_folder_that_says_nothing_is_pooled_by_the_mean(tmp_path: Path) -> None:
    save(tmp_path, "Bert")
    assert stored_pooling(tmp_path) is None
    assert core(tmp_path).info.pooling == "mean"


@pytest.mark.parametrize(
    "config",
    [
        {"pooling_mode_max_tokens": True},
        {},
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
    ],
)
def test_pooling_that_cannot_be_done_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    save(tmp_path, "Bert")
    write_pooling(tmp_path, config)
    with pytest.raises(ModelError, match="must be exactly one of"):
        core(tmp_path)


def test_a_module_behind_the_pooling_is_refused_by_name(tmp_path: Path) -> None:
    save(tmp_path, "Bert")
    write_pooling(tmp_path, {"pooling_mode_mean_tokens": True}, [TRANSFORMER, POOLING, DENSE])
    with pytest.raises(ModelError, match=r"models\.Dense.*the vectors would be others"):
        core(tmp_path)


def test_a_pooling_folder_outside_the_models_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "Bert")
    (tmp_path / "modules.json").write_text(json.dumps([TRANSFORMER, {**POOLING, "path": "../elsewhere"}]))
    with pytest.raises(ModelError, match="not a plain name"):
        core(tmp_path)


def test_texts_are_as_long_as_the_folder_says_unless_told_otherwise(tmp_path: Path) -> None:
    save(tmp_path, "Bert")
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')
    assert longest_input(tmp_path) == 32
    assert core(tmp_path).info.max_model_len == 32
    assert core(tmp_path, max_model_len=66).info.max_model_len == 66


def test_robertas_positions_begin_behind_its_padding(tmp_path: Path) -> None:
    save(tmp_path, "XLMRoberta")
    assert core(tmp_path).info.max_model_len == 64
    with pytest.raises(ConfigError, match="max_model_len is 66, but the model's context is 64"):
        core(tmp_path, max_model_len=66)


def test_norms_called_gamma_and_beta_are_found(tmp_path: Path) -> None:
    save(tmp_path, "Bert")
    before = encode(core(tmp_path), {"text": [5, 6, 7]})["text"]

    def rename(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if "LayerNorm" in name]:
            tensors[name.replace("weight", "gamma").replace("bias", "beta")] = tensors.pop(name)

    change_tensors(tmp_path, rename)
    assert np.array_equal(encode(core(tmp_path), {"text": [5, 6, 7]})["text"], before)


def test_all_missing_extra_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    save(tmp_path, "Bert")

    def damage(tensors: dict[str, Any]) -> None:
        del tensors["encoder.layer.0.output.dense.bias"]
        del tensors["embeddings.LayerNorm.weight"]
        tensors["encoder.layer.1.output.dense.bias"] = tensors["encoder.layer.1.output.dense.bias"][
            :5
        ].clone()
        tensors["encoder.layer.9.output.dense.bias"] = tensors["encoder.layer.1.output.dense.bias"].clone()

    change_tensors(tmp_path, damage)
    with pytest.raises(ModelError) as caught:
        core(tmp_path)
    message = str(caught.value)
    for part in (
        "It lacks 'embeddings.LayerNorm.weight', 'encoder.layer.0.output.dense.bias'.",
        "'encoder.layer.1.output.dense.bias' has [5] instead of [48]",
        "no place for 'encoder.layer.9.output.dense.bias'",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None, "vocab_size": None}, "'vocab_size' is missing; 'hidden_size' is missing"),
        ({"num_attention_heads": 5}, "hidden size 48 is not a multiple of its 5 heads"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers' is 0, not an integer from 1 to 1024"),
        ({"num_hidden_layers": 3_000_000}, "'num_hidden_layers' is 3000000, not an integer from 1 to 1024"),
        ({"hidden_size": "48"}, "'hidden_size' is '48'"),
        (
            {"hidden_size": "a", "num_attention_heads": "b"},
            "'hidden_size' is 'a'.*'num_attention_heads' is 'b'",
        ),
        ({"layer_norm_eps": -1}, "'layer_norm_eps' is -1"),
        ({"hidden_act": "swiglu"}, "activation 'swiglu' is not known"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder"),
        ({"vocab_size": 300}, r"word_embeddings.weight' has \[200, 48\] instead of \[300, 48\]"),
    ],
)
def test_a_wrong_configuration_is_refused_with_a_sentence(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    save(tmp_path, "Bert")
    edit_config(tmp_path, **changes)
    with pytest.raises(ModelError, match=message):
        core(tmp_path)


@pytest.mark.parametrize("name", ENCODERS)
def test_no_nonsense_in_a_description_does_more_than_raise_a_model_error(name: str) -> None:
    """Every field, replaced by every kind of nonsense: a shape that can be compared, or a sentence."""
    kind, task = next((kind, name.removeprefix(kind)) for kind in CONFIGS if name.startswith(kind))
    labels = {"num_labels": 1} if task == "ForSequenceClassification" else {}
    described = json.loads(CONFIGS[kind](**SHAPE, **labels).to_json_string())
    accepted = 0
    for field in [
        *described,
        "pad_token_id",
        "sentence_transformers",
        "sbert_ce_default_activation_function",
    ]:
        for value in NONSENSE:
            try:
                config = read_folder_config(ENCODERS[name], {**described, field: value}, Path("model"))
            except ModelError:
                continue
            accepted += 1
            assert config.num_layers <= MAX_LAYERS
            assert config.context_length >= 1
    assert accepted > 100  # fields that do not matter, or may be left out


def test_a_classifier_of_several_labels_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "Bert", "ForSequenceClassification", num_labels=3)
    with pytest.raises(ModelError, match="has 3 labels; scoring a pair of texts needs one that has 1"):
        core(tmp_path)


def test_a_score_through_an_unknown_function_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "Bert", "ForSequenceClassification", num_labels=1)
    edit_config(tmp_path, sbert_ce_default_activation_function="some.Swish")
    with pytest.raises(ModelError, match=r"some\.Swish.*only Sigmoid and Identity"):
        core(tmp_path)


def test_a_cross_encoder_takes_no_pooling_option(tmp_path: Path) -> None:
    save(tmp_path, "Bert", "ForSequenceClassification", num_labels=1)
    with pytest.raises(ConfigError, match="pooling is mean, but the model has a classifier head"):
        core(tmp_path, pooling="mean")


def test_the_right_core_is_opened_for_an_encoder(tmp_path: Path) -> None:
    save(tmp_path, "Bert")
    assert isinstance(open_core(EngineConfig(model=str(tmp_path), device="cpu")), EncoderCore)
