"""Published golden tokenizations of many families' vocabularies."""

from __future__ import annotations

import unicodedata

import pytest

from penstock.text.tokenizer import Tokenizer
from tests.text import vocabularies

BYTE_LEVEL = [
    "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "mpt", "qwen2", "refact",
    "starcoder",
]  # fmt: skip
SENTENCEPIECE = ["llama-spm", "phi-3"]
LOSSLESS = [*BYTE_LEVEL, *SENTENCEPIECE]


def check(tokenizer: Tokenizer, cases: list[tuple[str, list[int]]]) -> None:
    assert len(cases) >= 45
    for text, ids in cases:
        assert tokenizer.encode(text, parse_special=False, add_bos=False) == ids, text


@pytest.mark.parametrize("name", [*LOSSLESS, "bert-bge"])
def test_ids_are_the_published_ones(name: str) -> None:
    where = vocabularies.folder()
    tokenizer = vocabularies.load(where, name)
    cases = vocabularies.golden(where, name)
    check(tokenizer, cases)
    if name in LOSSLESS:
        for text, ids in cases:
            # Where the model's own normalization changes a text, the normalized one comes back.
            assert tokenizer.decode(ids) in (text, unicodedata.normalize("NFC", text))


@pytest.mark.slow
def test_ids_are_the_published_ones_of_a_newer_family() -> None:
    where = vocabularies.further()
    # Its reference was made without the normalization that the model's tokenizer begins with.
    cases = [
        case for case in vocabularies.golden(where, "qwen35") if unicodedata.is_normalized("NFC", case[0])
    ]
    check(vocabularies.load(where, "qwen35"), cases)


@pytest.mark.parametrize("name", ["llama-spm", "phi-3", "nomic-bert-moe", "bert-bge", "baichuan"])
def test_no_text_becomes_a_marker(name: str) -> None:
    tokenizer = vocabularies.load(vocabularies.folder(), name)
    unknown = tokenizer.special_tokens.get(tokenizer.named_tokens.get("unk_token", ""))
    for text in tokenizer.special_tokens:
        for plain in (text, f" {text}", f"a{text}b", text * 3):
            ids = set(tokenizer.encode(plain, parse_special=False, add_bos=False))
            assert ids & tokenizer.special_ids <= {unknown}, plain


def test_markers_of_phi_3_take_the_white_space_behind_them() -> None:
    tokenizer = vocabularies.load(vocabularies.folder(), "phi-3")
    user, end = tokenizer.special_tokens["<|user|>"], tokenizer.special_tokens["<|end|>"]
    hello = tokenizer.encode("Hello", add_bos=False)
    text = "<|user|>\n\n Hello<|end|>\n"
    assert tokenizer.encode(text, add_bos=False) == [user, *hello, end]
    assert tokenizer.encode_marked(text, "\ue000") == [user, *hello, end]


def test_bert_frames_a_text_and_a_pair() -> None:
    tokenizer = vocabularies.load(vocabularies.folder(), "bert-bge")
    cls, sep = tokenizer.special_tokens["[CLS]"], tokenizer.special_tokens["[SEP]"]
    a, b = (tokenizer.encode(text, parse_special=False) for text in ("the gate", "opens"))
    assert tokenizer.encode_pair("the gate", "opens") == (
        [cls, *a, sep, *b, sep],
        [0] * (len(a) + 2) + [1] * (len(b) + 1),
    )


def test_roberta_frames_a_text_and_a_pair() -> None:
    tokenizer = vocabularies.load(vocabularies.folder(), "nomic-bert-moe")
    begin, end = tokenizer.special_tokens["<s>"], tokenizer.special_tokens["</s>"]
    a, b = (tokenizer.encode(text, parse_special=False, add_bos=False) for text in ("the gate", "opens"))
    assert tokenizer.decode(a) == "the gate"
    ids, segments = tokenizer.encode_pair("the gate", "opens")
    assert (ids, set(segments)) == ([begin, *a, end, end, *b, end], {0})


def test_padding_of_a_vocabulary_stands_for_no_text() -> None:
    tokenizer = vocabularies.load(vocabularies.folder(), "phi-3")
    padding = tokenizer.vocab_size - 1
    assert tokenizer.token_bytes(padding) == b""
    assert tokenizer.decode([padding], skip_special=False) == ""
    assert padding not in tokenizer.encode("[PAD32063]")
