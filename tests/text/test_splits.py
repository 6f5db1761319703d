"""Byte-level BPE by the names that GGUF files give to families, against transformers' own classes."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers
from transformers import CohereTokenizer, GPT2Tokenizer, GPTNeoXTokenizer, Qwen2Tokenizer
from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

from penstock.errors import ModelError
from penstock.hub import ModelFiles
from penstock.text.splits import STYLES, pre_tokenizer
from penstock.text.tokenizer import Tokenizer

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "tokenizer_smollm2.json").read_text())
TEXTS: list[str] = [case["text"] for case in GOLDEN["cases"]]
END = "<|endoftext|>"


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    """A small vocabulary whose merges know no words, so that where words end is seen in the ids."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    model: dict[str, Any] = json.loads(backend.to_str())["model"]
    return model


def write(path: Path, trained: dict[str, Any], pre: str) -> Tokenizer:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([*trained["vocab"], END])
    writer.add_token_types([1] * len(trained["vocab"]) + [3])
    writer.add_token_merges([" ".join(pair) for pair in trained["merges"]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return Tokenizer.load(ModelFiles("test", path, "gguf"))


@pytest.mark.parametrize(
    ("pre", "family"),
    [
        ("gpt-2", GPT2Tokenizer),
        ("olmo", GPTNeoXTokenizer),
        ("command-r", CohereTokenizer),
        ("qwen2", Qwen2Tokenizer),
        ("qwen35", Qwen3_5Tokenizer),
    ],
)
def test_ids_are_those_of_transformers(
    pre: str, family: Any, trained: dict[str, Any], tmp_path: Path
) -> None:
    ours = write(tmp_path / "v.gguf", trained, pre)
    merges = [tuple(pair) for pair in trained["merges"]]
    vocabulary = {text: number for number, text in enumerate([*trained["vocab"], END])}
    theirs = family(
        vocab=vocabulary, merges=merges, unk_token=END, bos_token=END, eos_token=END, pad_token=END
    )
    for text in TEXTS:
        ids = theirs.backend_tokenizer.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == ids, text


@pytest.mark.parametrize("pre", STYLES)
def test_every_name_cuts_text_without_losing_any(pre: str, trained: dict[str, Any], tmp_path: Path) -> None:
    ours = write(tmp_path / "v.gguf", trained, pre)
    for text in TEXTS:
        kept = unicodedata.normalize("NFC", text) if STYLES[pre].nfc else text
        assert ours.decode(ours.encode(text), skip_special=False) == kept


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("llama-bpe", ["It", "'S", " ", " ", "123", "45", "km", "\n\n", " x", "!\n", "fooBar"]),
        ("qwen2", ["It", "'S", " ", " ", "1", "2", "3", "4", "5", "km", "\n\n", " x", "!\n", "fooBar"]),
        ("gpt-4o", ["It'S", " ", " ", "123", "45", "km", "\n\n", " x", "!\n", "foo", "Bar"]),
        ("tekken", ["It", "'S", " ", " ", "1", "2", "3", "4", "5", "km", "\n\n", " x", "!\n", "foo", "Bar"]),
        ("gpt-2", ["It", "'", "S", " ", " 12345", "km", "\n\n", " x", "!", "\n", "fooBar"]),
        ("deepseek-v3", ["It", "'S", "  ", "123", "45", "km", "\n\n", " x", "!\n", "fooBar"]),
    ],
)
def test_words_end_where_the_family_ends_them(pre: str, words: list[str]) -> None:
    text = "It'S  12345km\n\n x!\nfooBar"
    cut = pre_tokenizer(STYLES[pre]).pre_tokenize_str(text)
    assert [text[begin:end] for _, (begin, end) in cut] == words


def test_digits_may_be_grouped_from_the_end() -> None:
    cut = pre_tokenizer(STYLES["tiny_aya"]).pre_tokenize_str("1234567 km")
    assert [word for word, _ in cut] == ["1", "234", "567", "Ġkm"]


def test_an_unknown_name_is_refused_with_the_known_ones(trained: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'of-the-future', which Penstock does not know; .*llama-bpe"):
        write(tmp_path / "v.gguf", trained, "of-the-future")
