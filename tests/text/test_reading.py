"""Texts read as a whole: framed by the model's own tokens, cut at the end, held to the context."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers

from penstock import hub
from penstock.errors import ContextLengthError, InvalidRequestError
from penstock.text.reading import Read, Reader
from penstock.text.tokenizer import Tokenizer

CLS, SEP = 101, 102
SKY, BLUE = 3712, 2630


@pytest.fixture(scope="module")
def reader(embedding_model: Path) -> Reader:
    return Reader(Tokenizer.load(hub.resolve(str(embedding_model))), context=8)


@pytest.fixture(scope="module")
def chat_reader(default_model: Path) -> Reader:
    return Reader(Tokenizer.load(hub.resolve(str(default_model))), context=8)


def test_a_text_stands_in_the_models_frame(reader: Reader) -> None:
    assert reader.text("blue sky", "input") == Read([CLS, BLUE, SKY, SEP], [])
    assert reader.text("blue sky", "input", framed=False) == Read([BLUE, SKY], [])


def test_a_pair_tells_its_texts_apart(reader: Reader) -> None:
    pair = reader.pair("blue", "sky sky", ("query", "document"))
    assert pair == Read([CLS, BLUE, SEP, SKY, SKY, SEP], [0, 0, 0, 1, 1, 1])


def test_what_is_cut_off_is_the_end_of_the_text_and_never_the_frame(reader: Reader) -> None:
    long = "sky " * 20
    assert reader.text(long, "input", keep=5) == Read([CLS, SKY, SKY, SKY, SEP], [])
    assert reader.text(long, "input", keep=-1) == Read([CLS, *[SKY] * 6, SEP], [])
    assert reader.text(long, "input", keep=100) == Read([CLS, *[SKY] * 6, SEP], [])
    assert reader.text("sky", "input", keep=5) == Read([CLS, SKY, SEP], [])
    cut = reader.pair("blue", long, ("query", "document"), keep=6)
    assert cut == Read([CLS, BLUE, SEP, SKY, SKY, SEP], [0, 0, 0, 1, 1, 1])


def test_the_frame_is_told_from_a_text_of_which_no_word_is_known(tmp_path: Path) -> None:
    words = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "中": 5, "文": 6, "字": 7, "符": 8}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.decoder = tokenizers.decoders.WordPiece()
    backend.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    backend.add_special_tokens(["[UNK]", "[CLS]", "[SEP]"])
    backend.save(str(tmp_path / "tokenizer.json"))
    reader = Reader(Tokenizer.load(hub.ModelFiles("x", tmp_path, "safetensors")), context=8)
    assert reader.text("中文字符中文字符", "input", keep=4).ids == [1, 5, 6, 2]
    assert reader.text("中文字符中文字符", "input", keep=3).ids == [1, 5, 2]
    assert reader.text("a b c", "input", keep=4).ids == [1, 0, 0, 2]
    cut = reader.pair("中", "文字符 a", ("query", "document"), keep=5)
    assert cut == Read([1, 5, 2, 6, 2], [0, 0, 0, 1, 1])


def test_two_texts_without_a_frame_are_cut_at_the_end_though_they_end_alike(chat_reader: Reader) -> None:
    first, second = (chat_reader.text(text, "input").ids for text in ("blue sky", "green grey sky"))
    cut = chat_reader.pair("blue sky", "green grey sky", ("query", "document"), keep=len(first) + 1)
    assert cut.ids == [*first, second[0]]


def test_a_pair_that_needs_no_cut_is_tokenized_once(embedding_model: Path) -> None:
    class Counting(Tokenizer):
        count = 0

        def encode_pair(self, *texts: str) -> tuple[list[int], list[int]]:
            self.count += 1
            return super().encode_pair(*texts)

    tokenizer = Counting.load(hub.resolve(str(embedding_model)))
    Reader(tokenizer, context=8).pair("blue", "sky sky", ("query", "document"), keep=-1)
    assert tokenizer.count == 1


def test_ids_are_taken_as_they_are_and_cut_from_the_end(reader: Reader) -> None:
    assert reader.token_ids([1, 2, 3], "input") == Read([1, 2, 3], [])
    assert reader.token_ids(list(range(20)), "input", keep=3) == Read([0, 1, 2], [])
    assert reader.token_ids(list(range(20)), "input", keep=-1) == Read(list(range(8)), [])


def test_too_long_a_text_is_refused_with_its_place_and_both_lengths(reader: Reader) -> None:
    for read in (lambda: reader.text("sky " * 7, "input[3]"), lambda: reader.token_ids([1] * 9, "input[3]")):
        with pytest.raises(ContextLengthError, match=r"input\[3\] has 9 tokens, but .* at most 8") as caught:
            read()
        assert caught.value.param == "input[3]"


def test_nothing_to_read_is_refused(reader: Reader, chat_reader: Reader) -> None:
    for read in (
        lambda: reader.text("", "input"),
        lambda: reader.token_ids([], "input"),
        lambda: reader.pair("a", "", ("query", "input")),
        lambda: chat_reader.text("", "input"),
    ):
        with pytest.raises(InvalidRequestError, match=r"input (is empty|has no tokens)"):
            read()


def test_a_cut_that_leaves_nothing_of_the_text_is_refused(reader: Reader) -> None:
    with pytest.raises(InvalidRequestError, match=r"leaves 2 tokens, but input .* needs at least 3"):
        reader.text("blue sky", "input", keep=2)
    with pytest.raises(InvalidRequestError, match=r"leaves 4 tokens, but document .* needs at least 5"):
        reader.pair("blue", "sky sky", ("query", "document"), keep=4)


def test_a_chat_models_text_has_no_frame(chat_reader: Reader) -> None:
    whole = chat_reader.text("blue sky", "input")
    assert whole == chat_reader.text("blue sky", "input", framed=False)
    assert chat_reader.text("blue sky " * 9, "input", keep=2).ids == whole.ids[:2]
