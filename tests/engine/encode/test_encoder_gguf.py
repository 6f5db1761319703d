"""Encoders from GGUF: the same vectors as from the folder they were made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from penstock.engine.encode.families import BERT_TENSORS, GGUF_TENSORS
from penstock.errors import ModelError
from tests.engine.encode.encoders import SHAPE, core, encode, random_texts, save

MEAN, CLS, RANK = 1, 2, 4


def to_gguf(
    folder: Path,
    file: Path,
    *,
    pooling: int | None = MEAN,
    left_out: str = "",
    offset: int = 0,
    layers: int = SHAPE["num_hidden_layers"],
    heads: int = SHAPE["num_attention_heads"],
) -> Path:
    """What llama.cpp's converter writes for a BERT, metadata of the tokenizer aside."""
    writer = gguf.GGUFWriter(file, "bert")
    writer.add_block_count(layers)
    writer.add_context_length(SHAPE["max_position_embeddings"] - offset)
    writer.add_embedding_length(SHAPE["hidden_size"])
    writer.add_feed_forward_length(SHAPE["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_layer_norm_eps(SHAPE["layer_norm_eps"])
    writer.add_causal_attention(False)
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling))
    for name, values in load_file(folder / "model.safetensors").items():
        stored = _gguf_name(name)
        if stored is not None and stored != left_out:
            writer.add_tensor(stored, values[offset:].copy() if stored.startswith("position") else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _gguf_name(name: str) -> str | None:
    plain = name.removeprefix("bert.")
    heads = {"pooler.dense": "cls", "classifier": "cls.output"}
    stem, _, part = plain.rpartition(".")
    if stem in heads:
        return f"{heads[stem]}.{part}"
    for ours, theirs in BERT_TENSORS.items():
        for layer in range(SHAPE["num_hidden_layers"]):
            if stem == theirs.format(p="", i=layer):
                return f"{GGUF_TENSORS[ours].format(i=layer)}.{part}"
    return None


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize(("stored", "pooling"), [(MEAN, "mean"), (CLS, "cls"), (None, "mean")])
def test_a_gguf_gives_the_vectors_of_its_folder(stored: int | None, pooling: Any, tmp_path: Path) -> None:
    save(tmp_path / "folder", "Bert")
    engine = core(to_gguf(tmp_path / "folder", tmp_path / "model.gguf", pooling=stored))
    assert (engine.info.pooling, engine.info.max_model_len) == (pooling, 66)
    texts = random_texts(8)
    assert same(encode(engine, texts, pooling), encode(core(tmp_path / "folder"), texts, pooling))


def test_a_roberta_whose_first_positions_were_cut_off_is_read(tmp_path: Path) -> None:
    save(tmp_path / "folder", "XLMRoberta")
    engine = core(to_gguf(tmp_path / "folder", tmp_path / "model.gguf", offset=2))
    texts = random_texts(8)
    found, expected = encode(engine, texts), encode(core(tmp_path / "folder"), texts)
    assert max(np.abs(found[name] - expected[name]).max() for name in texts) <= 1e-6


def test_a_ranking_gguf_gives_the_scores_of_its_folder(tmp_path: Path) -> None:
    save(tmp_path / "folder", "Bert", "ForSequenceClassification", num_labels=1)
    engine = core(to_gguf(tmp_path / "folder", tmp_path / "model.gguf", pooling=RANK))
    assert engine.info.tasks == ("score",)
    texts = random_texts(8)
    assert same(encode(engine, texts, "score"), encode(core(tmp_path / "folder"), texts, "score"))


@pytest.mark.parametrize("name", ["token_types.weight", "blk.1.ffn_up.bias"])
def test_a_missing_tensor_is_named(name: str, tmp_path: Path) -> None:
    save(tmp_path / "folder", "Bert")
    file = to_gguf(tmp_path / "folder", tmp_path / "model.gguf", left_out=name)
    with pytest.raises(ModelError, match=name):
        core(file)


def test_all_numbers_that_make_no_sense_are_named(tmp_path: Path) -> None:
    save(tmp_path / "folder", "Bert")
    file = to_gguf(tmp_path / "folder", tmp_path / "model.gguf", layers=3_000_000, heads=0)
    with pytest.raises(
        ModelError, match=r"'bert\.block_count' is 3000000, .* to 1024; 'bert\.attention\.head_count' is 0"
    ):
        core(file)
