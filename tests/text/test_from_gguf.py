"""Tokenizers from GGUF metadata that is unusual, incomplete or wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest

from penstock.errors import ModelError
from penstock.hub import ModelFiles
from penstock.text.pieces import Kind
from penstock.text.tokenizer import Tokenizer

TOKENS = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "ab", "[PAD8]", "<tag>"]
KINDS = [Kind.UNKNOWN, Kind.CONTROL, Kind.CONTROL, *[Kind.NORMAL] * 5, Kind.USER_DEFINED, Kind.USER_DEFINED]
PIECES: dict[str, Any] = {
    "model": "llama",
    "tokens": TOKENS,
    "scores": [0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0, 0.0, 0.0],
    "token_type": [int(kind) for kind in KINDS],
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WORDS: dict[str, Any] = {
    "model": "bert",
    "tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁the", "▁gate", "s", "▁é", "▁e"],
    "token_type": [3, 3, 3, 3, 1, 1, 1, 1, 1],
    "unknown_token_id": 1,
    "cls_token_id": 2,
    "seperator_token_id": 3,
}


def load(folder: Path, described: dict[str, Any], **changes: Any) -> Tokenizer:
    """Write a file with this metadata; None leaves a key out."""
    path = folder / "v.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name, value in {**described, **changes}.items():
        key = f"tokenizer.ggml.{name}"
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif value is not None:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return Tokenizer.load(ModelFiles("test", path, "gguf"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "of-the-future"}, "a tokenizer of kind 'of-the-future', and Penstock builds gpt2, llama"),
        ({"model": None}, "a tokenizer of kind None"),
        ({"scores": None}, r"no usable tokenizer\.ggml\.scores"),
        ({"scores": [0.0, 1.0]}, "10 tokens and 2 scores; the two must agree"),
        ({"token_type": [1, 1]}, "10 tokens and 2 token types; the two must agree"),
        ({"tokens": None}, r"no usable tokenizer\.ggml\.tokens"),
        ({"model": "gpt2"}, r"no usable tokenizer\.ggml\.merges"),
        ({"model": "gpt2", "merges": ["ab"]}, "a merge that is not two tokens"),
        ({"model": "gpt2", "merges": ["a x"]}, "cannot be built: "),
        ({"model": "t5", "precompiled_charsmap": [1, 2, 3]}, "cannot be built: "),
    ],
)
def test_what_cannot_be_built_is_one_sentence(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=rf"v\.gguf.*{reason}.*\.$"):
        load(tmp_path, PIECES, **changes)


def test_the_best_score_merges_first(tmp_path: Path) -> None:
    ours = load(tmp_path, PIECES)
    assert ours.encode("ab", add_bos=False) == [TOKENS.index("▁a"), TOKENS.index("b")]
    scores = [*PIECES["scores"]]
    scores[TOKENS.index("ab")] = -0.5
    ours = load(tmp_path, PIECES, scores=scores)
    assert ours.encode("ab", add_bos=False) == [TOKENS.index("▁"), TOKENS.index("ab")]


def test_a_space_goes_before_a_text_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    assert load(tmp_path, PIECES).encode("a") == [1, TOKENS.index("▁a")]
    ours = load(tmp_path, PIECES, add_space_prefix=False, add_bos_token=False)
    assert ours.encode("a") == [TOKENS.index("a")]
    assert ours.decode(ours.encode(" a")) == " a"


def test_what_cannot_be_spelled_is_the_unknown_token(tmp_path: Path) -> None:
    assert load(tmp_path, PIECES).encode("xyz", add_bos=False) == [TOKENS.index("▁"), 0]


def test_padding_is_never_text_in_either_direction(tmp_path: Path) -> None:
    ours = load(tmp_path, PIECES)
    assert ours.token_bytes(TOKENS.index("[PAD8]")) == b""
    assert TOKENS.index("[PAD8]") not in ours.encode("[PAD8]")
    assert ours.encode("<tag>", parse_special=False, add_bos=False) == [TOKENS.index("<tag>")]


def test_words_go_on_with_pieces_that_begin_none(tmp_path: Path) -> None:
    ours = load(tmp_path, WORDS)
    assert ours.encode("The GATES") == [4, 5, 6]
    assert ours.decode([4, 5, 6]) == "the gates"
    assert ours.encode_pair("gates", "the") == ([2, 5, 6, 3, 4, 3], [0, 0, 0, 0, 1, 1])


@pytest.mark.parametrize(("changes", "ids"), [({}, [8]), ({"normalizer.lowercase": False}, [7])])
def test_accents_are_dropped_unless_case_matters(
    tmp_path: Path, changes: dict[str, Any], ids: list[int]
) -> None:
    assert load(tmp_path, WORDS, **changes).encode("é") == ids
