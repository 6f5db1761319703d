"""Vocabularies of pieces against SentencePiece itself, which trains them here on a few sentences."""

from __future__ import annotations

import io
import json
import unicodedata
from pathlib import Path
from typing import Any

import gguf
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from transformers import GemmaTokenizer, LlamaTokenizer

from penstock.engine.request import SamplingParams
from penstock.errors import ModelError
from penstock.hub import ModelFiles
from penstock.text.from_sentencepiece import read_sentencepiece
from penstock.text.pieces import Kind
from penstock.text.stream import TextStream
from penstock.text.tokenizer import Tokenizer

CORPUS = [
    "The gate opens, and water falls on the wheel; the wheel turns, and the mill grinds.",
    "Der Müller mahlt das Korn, der Bäcker bäckt das Brot.",
    "水は流れる。 流れる水は腐らず。",
    "def f(x):\n    return x ** 2  # indented\n\n\tif x: pass",
    "1234567890 3.14159 2026-11-15",
    "e\u0301 ﬁne ① Ａ",
] * 30
SHARED: dict[str, Any] = {
    "character_coverage": 1.0,
    "hard_vocab_limit": False,
    "minloglevel": 2,
    "num_threads": 1,
}
# As the families' own were trained.
LLAMA = {
    "model_type": "bpe",
    "vocab_size": 500,
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
    "split_digits": True,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "gemma": {
        **LLAMA,
        "add_dummy_prefix": False,
        "user_defined_symbols": ["<b>", "\n\n", "▁▁", "▁▁▁", "<end_of_turn>"],
        "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3,
    },
    "without bytes": {**LLAMA, "byte_fallback": False},
    "nfkc": {**LLAMA, "normalization_rule_name": "nmt_nfkc", "remove_extra_whitespaces": True},
    "unigram": {"model_type": "unigram", "vocab_size": 300},
    "unigram with bytes": {**LLAMA, "model_type": "unigram", "vocab_size": 400},
}  # fmt: skip
NASTY = [
    "",
    " ",
    "   ",
    "The gate",
    " The gate",
    "  The  gate  ",
    "the wheel\n\nturns\t\n \n",
    "Müller 水 流れる。",
    "😀 family 👩‍👩‍👧‍👦 and 𝔉𝔯𝔞𝔨",
    "e\u0301 é ﬁ ① Ａ \u3000 \u00a0",
    "x=1234567890; y = 3.14",
    "aaaaaaaaaaaaaaaaaaaaaaaaa",
    "<b>bold</b><end_of_turn>",
    "<0x41> <unk> <s> </s>",
    "▁already▁ marked ▁▁",
    "\ufffd\ue000\U0010fffd",
]


def train(**options: Any) -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=written, **{**SHARED, **options}
    )
    return written.getvalue()


def write_gguf(path: Path, model: bytes, **flags: bool) -> Path:
    """The vocabulary as llama.cpp's converter writes it."""
    source = sentencepiece.SentencePieceProcessor(model_proto=model)
    path.with_suffix(".model").write_bytes(model)
    read = read_sentencepiece(path.with_suffix(".model"))
    described = read.pieces
    texts, kinds = [], []
    for number in range(source.vocab_size()):
        text, kind = source.id_to_piece(number), Kind.NORMAL
        if source.is_unknown(number):
            kind = Kind.UNKNOWN
        elif source.is_control(number):
            kind = Kind.CONTROL
        elif source.is_byte(number):
            kind = Kind.BYTE
        elif described.kinds[number] == Kind.USER_DEFINED:
            text, kind = text.replace("▁", " "), Kind.USER_DEFINED
        texts.append(text)
        kinds.append(kind)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("t5" if read.unigram else "llama")
    writer.add_token_list(texts)
    writer.add_token_scores([source.get_score(number) for number in range(len(texts))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(source.bos_id())
    writer.add_eos_token_id(source.eos_id())
    writer.add_unk_token_id(source.unk_id())
    for name, value in flags.items():
        writer.add_bool(f"tokenizer.ggml.{name}", value)
    if described.character_map:
        writer.add_precompiled_charsmap(list(described.character_map))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def from_folder(folder: Path, model: bytes, **settings: Any) -> Tokenizer:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.model").write_bytes(model)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return Tokenizer.load(ModelFiles("test", folder, "safetensors"))


Pair = tuple[Tokenizer, sentencepiece.SentencePieceProcessor]


@pytest.fixture(scope="module", params=[(name, kind) for name in MODELS for kind in ("gguf", "folder")])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name, kind = request.param
    model = train(**MODELS[name])
    folder = tmp_path_factory.mktemp("model")
    if kind == "folder":
        ours = from_folder(folder, model)
    else:
        flags = {
            "add_space_prefix": name != "gemma",
            "remove_extra_whitespaces": name in ("nfkc", "unigram"),
        }
        path = write_gguf(folder / "model.gguf", model, **flags)
        ours = Tokenizer.load(ModelFiles("test", path, "gguf"))
    return ours, sentencepiece.SentencePieceProcessor(model_proto=model)


def plain(ours: Tokenizer, text: str) -> list[int]:
    return ours.encode(text, parse_special=False, add_bos=False)


@pytest.mark.parametrize("text", NASTY)
def test_ids_are_those_of_sentencepiece(pair: Pair, text: str) -> None:
    ours, reference = pair
    if "<end_of_turn>" in text or "▁" in text:
        return  # held back from text, unlike there; and a "▁" of the text's own is a space there
    assert plain(ours, text) == reference.encode(text)


letters = st.sampled_from([" ", "the", "wheel", "gate", "水", "é", "😀", "\n", "12", "x", "<b>", "mill "])


@given(parts=st.lists(letters | st.text(max_size=3), max_size=12))
def test_ids_of_any_text_are_those_of_sentencepiece(pair: Pair, parts: list[str]) -> None:
    ours, reference = pair
    text = "".join(parts)
    # A "▁" of the text's own is a space there. And the library normalizes a character with its
    # combining marks as one, which in rare cases gives another order of marks.
    if "▁" not in text and "\0" not in text and not any(map(unicodedata.combining, text)):
        ids, expected = plain(ours, text), reference.encode(text)
        if ours._vocabulary.plain_model is not None:  # of a unigram model's equally good cuts, either may win
            ids, expected = sorted(ids), sorted(expected)
        assert ids == expected


@given(parts=st.lists(letters | st.text(max_size=3), max_size=12))
def test_decoding_gives_the_text_back_and_a_stream_the_same_after_any_prefix(
    pair: Pair, parts: list[str]
) -> None:
    ours, _ = pair
    text = "".join(parts)
    ids = plain(ours, text)
    whole = ours.decode(ids, skip_special=False)
    stream = TextStream(ours, SamplingParams(skip_special_tokens=False))
    shown = "".join(map(stream.push, ids)) + stream.finish()
    # What is generated goes on from a prompt, so a stream keeps the space that begins a whole text.
    assert shown in (whole, f" {whole}")
    prompt = plain(ours, "the gate")
    assert ours.decode(prompt + ids, skip_special=False) == ours.decode(prompt) + shown
    # Behind a control token, as in a chat, a text of its own begins.
    assert not ours.begins_text(prompt)
    begins = ours.begins_text([min(ours.special_ids)])
    begun = TextStream(ours, SamplingParams(skip_special_tokens=False), begins=begins)
    assert "".join(map(begun.push, ids)) + begun.finish() == whole
    if "<0x00>" in vocabulary(ours) and exact(ours):
        assert whole == text.replace("▁", " ")


def vocabulary(ours: Tokenizer) -> set[str]:
    return set(ours._parsing.get_vocab())


def exact(ours: Tokenizer) -> bool:
    """Whether the model normalizes nothing away."""
    return plain(ours, "  \u00a0") != plain(ours, " ")


def test_markers_are_ids_only_when_parsed(pair: Pair) -> None:
    ours, reference = pair
    begin, end = reference.bos_id(), reference.eos_id()
    assert ours.bos_token_id == begin
    assert ours.eos_token_ids[0] == end
    ids = ours.encode("<s>the gate</s>", add_bos=False)
    assert (ids[0], ids[-1]) == (begin, end)
    assert ids[1:-1] == plain(ours, "the gate")
    assert not {begin, end}.intersection(plain(ours, "<s>the gate</s>"))


def test_turn_markers_among_the_pieces_are_control_tokens(tmp_path: Path) -> None:
    ours = from_folder(tmp_path / "m", train(**MODELS["gemma"]))
    marker = ours.special_tokens["<end_of_turn>"]
    assert marker in ours.eos_token_ids
    assert ours.encode("a<end_of_turn>")[-1] == marker
    assert marker not in plain(ours, "a<end_of_turn>")


@pytest.mark.parametrize("family", ["llama", "llama of old", "gemma"])
def test_tokenizers_saved_by_transformers_are_read_as_they_are(family: str, tmp_path: Path) -> None:
    """Llama's puts a space first in two ways, Gemma's none; all of them add the begin token."""
    source = from_folder(tmp_path / "source", train(**LLAMA))
    described = json.loads(source._parsing.to_str())["model"]
    shared = {
        "vocab": described["vocab"],
        "merges": [tuple(pair) for pair in described["merges"]],
        "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>",
    }  # fmt: skip
    if family == "gemma":
        theirs: Any = GemmaTokenizer(**shared, mask_token="<unk>")
    else:
        theirs = LlamaTokenizer(**shared, legacy=family == "llama of old")
    theirs.save_pretrained(tmp_path / "saved")
    ours = Tokenizer.load(ModelFiles("test", tmp_path / "saved", "safetensors"))
    for text in (*NASTY, "<s>the gate</s>", "the</s> gate</s>\nx"):
        ids = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, add_bos=False) == ids, text
        assert ours.encode(text) == theirs.encode(text), text
        assert ours.decode(ids, skip_special=False) == theirs.decode(ids), text


def test_ids_are_those_of_transformers_gemma(tmp_path: Path) -> None:
    model = train(**{**MODELS["gemma"], "user_defined_symbols": []})
    path = write_gguf(tmp_path / "m.gguf", model, add_space_prefix=False)
    ours = Tokenizer.load(ModelFiles("test", path, "gguf"))
    described = json.loads(ours._parsing.to_str())["model"]
    theirs = GemmaTokenizer(
        vocab=described["vocab"],
        merges=[tuple(pair) for pair in described["merges"]],
        bos_token="<s>",
        eos_token="</s>",
    )
    for text in NASTY:
        assert ours.encode(text, add_bos=False) == theirs.encode(text, add_special_tokens=False), text


def test_tokens_added_later_have_the_ids_and_manners_that_the_settings_say(tmp_path: Path) -> None:
    model = train(**LLAMA)
    size = sentencepiece.SentencePieceProcessor(model_proto=model).vocab_size()
    added = {
        str(size): {"content": "<|user|>", "special": True, "rstrip": True},
        str(size + 1): {"content": "<tool>", "special": False},
    }
    ours = from_folder(tmp_path / "m", model, added_tokens_decoder=added)
    assert ours.encode("<|user|> \n the<tool>", add_bos=False) == [size, *plain(ours, "the"), size + 1]
    assert plain(ours, "<tool>") == [size + 1]
    assert size not in plain(ours, "<|user|>")


def test_the_settings_decide_about_the_begin_token(tmp_path: Path) -> None:
    model = train(**LLAMA)
    assert from_folder(tmp_path / "a", model).encode("a")[0] == 1
    assert from_folder(tmp_path / "b", model, add_bos_token=False).encode("a")[0] != 1
    assert from_folder(tmp_path / "c", model, bos_token=None).bos_token_id is None


@pytest.mark.parametrize("cut", [1, 7, 1000, -3])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, cut: int) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.model is not a usable SentencePiece model: .*\.$"):
        from_folder(tmp_path / "m", train(**LLAMA)[:cut])


@given(data=st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.model"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"fuzz\.model"):
        read_sentencepiece(path)


def test_bytes_where_a_number_should_be_are_refused(tmp_path: Path) -> None:
    # One piece (field 1) whose kind (its field 3) is a text.
    (tmp_path / "odd.model").write_bytes(b"\x0a\x06\x0a\x01a\x1a\x01b")
    with pytest.raises(ModelError, match="has bytes where a number should be"):
        read_sentencepiece(tmp_path / "odd.model")


def test_compatibility_characters_are_normalized_as_the_model_was_trained(tmp_path: Path) -> None:
    ours = from_folder(tmp_path / "m", train(**MODELS["nfkc"]))
    for text in ("ﬁne", "Ａ", "①"):
        assert plain(ours, text) == plain(ours, unicodedata.normalize("NFKC", text))
