"""The tokenizer built from the default model's GGUF metadata, against two other implementations."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidRequestError
from penstock.text.tokenizer import Tokenizer

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "tokenizer_smollm2.json").read_text())
CASES: list[dict[str, Any]] = GOLDEN["cases"]
# Bytes that never occurred when the model's vocabulary was made. The reference drops them too.
LACKING = frozenset({0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)})
GROUPS = sorted({case["group"] for case in CASES})


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("mode", ["plain", "special"])
def test_ids_equal_those_of_llama_cpp(tokenizer: Tokenizer, group: str, mode: str) -> None:
    for case in CASES:
        if case["group"] == group:
            ids = tokenizer.encode(case["text"], parse_special=mode == "special")
            assert ids == case[mode], case["text"]


def test_the_corpus_is_large_and_tells_the_two_modes_apart() -> None:
    assert len(CASES) >= 150
    assert sum(case["plain"] != case["special"] for case in CASES) >= 15


def test_ids_equal_those_of_transformers(tokenizer: Tokenizer, default_model: Path) -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(default_model.parent, gguf_file=default_model.name)
    compared = 0
    for case in CASES:
        # Its conversion of GGUF leaves out that these models take digits one by one.
        if any(character.isnumeric() for character in case["text"]):
            continue
        ids = reference(case["text"], add_special_tokens=False)["input_ids"]
        assert tokenizer.encode(case["text"]) == ids, case["text"]
        compared += 1
    assert compared >= 120


@pytest.mark.parametrize("mode", ["plain", "special"])
def test_decoding_gives_back_the_text(tokenizer: Tokenizer, mode: str) -> None:
    for case in CASES:
        if not LACKING.intersection(case["text"].encode()):
            assert tokenizer.decode(case[mode], skip_special=False) == case["text"]


@given(text=st.text(), parse_special=st.booleans())
def test_any_text_survives_encoding_but_for_bytes_the_vocabulary_lacks(
    tokenizer: Tokenizer, text: str, parse_special: bool
) -> None:
    ids = tokenizer.encode(text, parse_special=parse_special)
    kept = bytes(byte for byte in text.encode() if byte not in LACKING)
    assert b"".join(map(tokenizer.token_bytes, ids)) == kept
    assert tokenizer.decode(ids, skip_special=False) == kept.decode(errors="replace")


def test_control_tokens_are_ids_only_when_parsed(tokenizer: Tokenizer) -> None:
    text = "<|im_start|>user\nHi<|im_end|>"
    assert tokenizer.encode(text, parse_special=True)[0] == 1
    assert tokenizer.encode(text, parse_special=True)[-1] == 2
    assert not tokenizer.special_ids.intersection(tokenizer.encode(text, parse_special=False))


def test_the_model_names_its_own_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 49152
    assert tokenizer.bos_token_id == 1
    assert tokenizer.eos_token_ids == (2, 0)  # <|im_end|>, as the file says, and <|endoftext|>
    assert tokenizer.special_ids == frozenset(range(17))
    assert tokenizer.chat_template is not None
    assert "<|im_start|>" in tokenizer.chat_template


def test_a_begin_token_is_added_when_asked_for_and_by_default_as_the_file_says(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a") == [81]
    assert tokenizer.encode("a", add_bos=False) == [81]
    assert tokenizer.encode("a", add_bos=True) == [1, 81]


def test_skipping_special_tokens_leaves_the_text_around_them(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a<|im_end|>b")
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_special=False) == "a<|im_end|>b"


def test_part_of_a_character_shows_as_a_replacement(tokenizer: Tokenizer) -> None:
    first, *rest = tokenizer.encode("😀")
    assert rest, "the emoji takes several tokens"
    assert tokenizer.token_text(first) == "\ufffd"
    assert "😀".encode().startswith(tokenizer.token_bytes(first))


@pytest.mark.parametrize("token_id", [-1, 49152, 10**12])
def test_an_id_outside_the_vocabulary_stands_for_nothing(tokenizer: Tokenizer, token_id: int) -> None:
    assert tokenizer.token_bytes(token_id) == b""
    assert tokenizer.decode([81, token_id, 82]) == "ab"


def test_a_lone_surrogate_is_refused_with_its_place(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError, match=r"U\+D83D at character 2"):
        tokenizer.encode("ab\ud83dc")


def test_other_threads_run_while_a_long_text_is_encoded(tokenizer: Tokenizer) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # now only the encoder itself can let another thread run
    try:
        assert any(seen_while_it_encodes(tokenizer) for _ in range(10))
    finally:
        sys.setswitchinterval(interval)


def seen_while_it_encodes(tokenizer: Tokenizer) -> bool:
    """Whether this thread had a turn after an encoding had begun and before it had ended."""
    begun, ended = threading.Event(), threading.Event()

    def encode() -> None:
        begun.set()
        tokenizer.encode("<|im_ " * 50_000)
        ended.set()

    thread = threading.Thread(target=encode)
    thread.start()
    begun.wait()
    seen = not ended.is_set()
    thread.join()
    return seen
