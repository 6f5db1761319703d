"""Texts as encoders read them: whole, in the model's own frame, with segments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from penstock.errors import InvalidRequestError
from penstock.hub import ModelFiles
from penstock.text.tokenizer import Tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "gate", "water", "##fall", "##s", "[", "]", "sep", ",", "opens"]
CLS, SEP, GATE, OPENS = (WORDS.index(word) for word in ("[CLS]", "[SEP]", "gate", "opens"))


def wordpiece() -> tokenizers.Tokenizer:
    """As BERT's: WordPiece of lower-case words."""
    backend = tokenizers.Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in WORDS[:4]])
    return backend


def bytes_alone() -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "</s>"])
    return backend


def load(folder: Path, backend: tokenizers.Tokenizer, **settings: object) -> Tokenizer:
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return Tokenizer.load(ModelFiles("test", folder, "safetensors"))


def test_two_texts_stand_in_the_models_frame_and_have_segments(tmp_path: Path) -> None:
    ours = load(tmp_path, wordpiece())
    assert ours.encode_pair("Gate opens") == ([CLS, GATE, OPENS, SEP], [0, 0, 0, 0])
    assert ours.encode_pair("Gate opens", "gate") == (
        [CLS, GATE, OPENS, SEP, GATE, SEP],
        [0, 0, 0, 0, 1, 1],
    )


def test_a_separator_in_the_text_stays_text(tmp_path: Path) -> None:
    ids, segments = load(tmp_path, wordpiece()).encode_pair("gate [SEP] opens", "[CLS]")
    assert (ids.count(SEP), ids.count(CLS)) == (2, 1)
    assert [WORDS[i] for i in ids[1:6]] == ["gate", "[", "sep", "]", "opens"]
    assert len(segments) == len(ids)


def test_word_pieces_become_words_again(tmp_path: Path) -> None:
    ours = load(tmp_path, wordpiece())
    ids = ours.encode("waterfalls, gate")
    assert ours.decode(ids) == "waterfalls , gate"
    assert "".join(map(ours.token_text, ids)) == " waterfalls , gate"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, "ab"), ({"add_bos_token": True}, "<s>ab"), ({"add_eos_token": True}, "ab</s>")],
)
def test_without_a_frame_the_settings_say_what_is_around_the_text(
    tmp_path: Path, settings: dict[str, bool], expected: str
) -> None:
    ours = load(tmp_path, bytes_alone(), bos_token="<s>", eos_token="</s>", **settings)
    for ids, segments in (ours.encode_pair("ab"), ours.encode_pair("a", "b")):
        assert ours.decode(ids, skip_special=False) == expected
        assert segments == [0] * len(ids)


def test_a_lone_surrogate_in_either_text_is_refused(tmp_path: Path) -> None:
    ours = load(tmp_path, wordpiece())
    with pytest.raises(InvalidRequestError, match="lone surrogate"):
        ours.encode_pair("gate", "\ud83d")
