"""Words and choices become token ids by rules that a client can know."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from penstock.errors import InvalidRequestError
from penstock.text.constraints import bad_word_ids, guided_ids
from penstock.text.tokenizer import Tokenizer
from penstock.text.vocabulary import Vocabulary


def test_a_bad_word_is_banned_alone_and_behind_a_space(tokenizer: Tokenizer) -> None:
    spellings = {tuple(tokenizer.encode("Paris")), tuple(tokenizer.encode(" Paris"))}
    assert set(bad_word_ids(tokenizer, ["Paris"])) == spellings
    assert set(bad_word_ids(tokenizer, ["  Paris", "Paris"])) == spellings


def test_a_control_token_can_be_banned_by_its_text(tokenizer: Tokenizer) -> None:
    assert (tokenizer.special_tokens["<|im_end|>"],) in bad_word_ids(tokenizer, ["<|im_end|>"])


def test_a_word_of_white_space_alone_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError, match=r"bad_words\[1\] has no word"):
        bad_word_ids(tokenizer, ["x", " \n"])


def test_nothing_asked_is_nothing(tokenizer: Tokenizer) -> None:
    assert bad_word_ids(tokenizer, ()) == guided_ids(tokenizer, ()) == ()


@pytest.mark.parametrize("text", ["yes", " yes", "Straße 🙂", "<|im_end|>", "\n\n", "a b  c"])
def test_a_choice_is_spelled_exactly_and_never_by_control_tokens(tokenizer: Tokenizer, text: str) -> None:
    [ids] = guided_ids(tokenizer, [text])
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == text
    assert not set(ids) & tokenizer.special_ids


def test_the_same_choice_twice_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError, match="guided_choice has 'a' twice"):
        guided_ids(tokenizer, ["a", "b", "a"])


@pytest.fixture(scope="module")
def prefixing() -> Tokenizer:
    """A tokenizer in SentencePiece's manner, which puts a space before a first word."""
    pieces = ["<unk>", "\n", "▁", "y", "e", "s", "▁y", "es", "yes", "▁yes"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = [("e", "s"), ("y", "es"), ("▁", "y"), ("▁", "yes")]
    backend = Backend(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    return Tokenizer(
        Vocabulary(
            backend=backend,
            spelling="sentencepiece",
            special={},
            bos_token_id=None,
            eos_token_ids=(),
            add_bos=False,
            chat_template=None,
        )
    )


def test_a_space_that_the_tokenizer_adds_is_not_in_the_answer(prefixing: Tokenizer) -> None:
    assert prefixing.token_text(prefixing.encode("yes")[0]) == " yes"
    [ids] = guided_ids(prefixing, ["yes"])
    assert "".join(map(prefixing.token_text, ids)) == "yes"
    [spaced] = guided_ids(prefixing, [" yes"])
    assert "".join(map(prefixing.token_text, spaced)) == " yes"


def test_what_the_tokenizer_cannot_spell_is_refused(prefixing: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError, match="cannot spell exactly") as caught:
        guided_ids(prefixing, ["no"])
    assert caught.value.param == "guided_choice"


def test_a_lone_surrogate_is_no_text(tokenizer: Tokenizer) -> None:
    for ids in (guided_ids, bad_word_ids):
        with pytest.raises(InvalidRequestError, match="lone surrogate"):
            ids(tokenizer, ["\ud800"])
