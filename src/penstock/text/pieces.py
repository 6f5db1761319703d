"""Tokenizers of pieces: what SentencePiece calls a vocabulary, built for the `tokenizers` library.

A piece is text in which "▁" stands for a space, with a score and a kind; the numbers of the kinds
are the same in GGUF files and in SentencePiece's own.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

SPACE = "▁"
_SECRET = secrets.token_hex(16)
_PADDING = re.compile(r"\[PAD\d+\]")


class Kind(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Pieces:
    """A vocabulary of pieces, and how text is brought into their form."""

    texts: Sequence[str]
    scores: Sequence[float]
    kinds: Sequence[int]
    unknown: int | None = None  # id of the piece for what cannot be spelled
    space_first: bool = True  # a space is put before a text that begins, and before what follows a marker
    single_spaces: bool = False  # runs of spaces become one, and those at the ends none
    character_map: bytes = b""  # SentencePiece's compiled normalization
    strips_right: frozenset[str] = field(default=frozenset())  # markers that take the white space behind them


def is_padding(text: str, kind: int) -> bool:
    """Whether an entry only fills the vocabulary up to the model's size; it never stands for text."""
    return kind == Kind.UNUSED or (kind != Kind.NORMAL and _PADDING.fullmatch(text) is not None)


def bpe(pieces: Pieces, special: Mapping[str, int]) -> Any:
    """SentencePiece's BPE: of all neighbours that make a piece, the pair with the best score merges first."""
    from tokenizers import Tokenizer, models

    vocabulary = _vocabulary(pieces)
    has_bytes = "<0x00>" in vocabulary
    model = models.BPE(
        vocab=vocabulary,
        merges=[pair for pair in _merges(pieces, vocabulary) if pair[0] + pair[1] not in special],
        unk_token=None if pieces.unknown is None else pieces.texts[pieces.unknown],
        fuse_unk=True,
        byte_fallback=has_bytes,
    )
    backend = Tokenizer(model)
    backend.normalizer = _normalizer(pieces)
    _finish(backend, pieces, special)
    return backend


def unigram(pieces: Pieces, special: Mapping[str, int]) -> tuple[Any, Any]:
    """SentencePiece's unigram model: the cut of a text with the best sum of scores.

    Also gives a model that cannot spell markers: to this one, a marker is a piece like any other.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    vocabulary = list(zip(_vocabulary(pieces), map(float, pieces.scores), strict=True))
    has_bytes = "<0x00>" in pieces.texts
    backend = Tokenizer(models.Unigram(vocabulary, pieces.unknown, has_bytes))
    if has_bytes:
        # To the library the text "<0x41>" is a byte's piece, but that only stands in for what has no piece.
        backend.pre_tokenizer = pre_tokenizers.Split(Regex("<(?=0x[0-9A-F]{2}>)"), "isolated")
    backend.normalizer = _normalizer(pieces)
    _finish(backend, pieces, special)
    return backend, models.Unigram(
        [(unreachable(text) if text in special else text, score) for text, score in vocabulary],
        pieces.unknown,
        has_bytes,
    )


def unreachable(text: str) -> str:
    """A spelling of a marker that nobody can send."""
    return f"{_SECRET}{text}"


def _vocabulary(pieces: Pieces) -> dict[str, int]:
    """Ids by text. Pieces that are found as they are, spaces included, keep no "▁"."""
    return {
        text.replace(SPACE, " ") if kind == Kind.USER_DEFINED else text: number
        for number, (text, kind) in enumerate(zip(pieces.texts, pieces.kinds, strict=True))
    }


def _merges(pieces: Pieces, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, best score first; of equal ones, the longest left part first.

    Only ordinary pieces take part: bytes, markers and what is found before merging never come of it.
    """
    ordinary = {text for text, number in vocabulary.items() if pieces.kinds[number] == Kind.NORMAL}
    found = []
    for text in ordinary:
        number = vocabulary[text]
        score, size = pieces.scores[number], len(text)
        for cut in range(1, size):
            left = text[:cut]
            if left in ordinary and (right := text[cut:]) in ordinary:
                found.append((-score, -cut, cut - size, number, left, right))
    found.sort()
    return [(left, right) for *_, left, right in found]


def _normalizer(pieces: Pieces) -> Any:
    from tokenizers import Regex, normalizers

    steps: list[Any] = []
    if pieces.character_map:
        steps.append(normalizers.Precompiled(pieces.character_map))
    if pieces.single_spaces:
        steps += [normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if pieces.space_first:
        steps.append(normalizers.Prepend(SPACE))
    steps.append(normalizers.Replace(" ", SPACE))
    return normalizers.Sequence(steps)


def _finish(backend: Any, pieces: Pieces, special: Mapping[str, int]) -> None:
    """Markers and pieces that are found before anything else."""
    from tokenizers import AddedToken

    backend.add_special_tokens(
        [
            AddedToken(text, special=True, normalized=False, rstrip=text in pieces.strips_right)
            for text in special
        ]
    )
    backend.add_tokens(
        [
            AddedToken(text.replace(SPACE, " "), special=False, normalized=False)
            for text, kind in zip(pieces.texts, pieces.kinds, strict=True)
            if kind == Kind.USER_DEFINED and text and text not in special and not is_padding(text, kind)
        ]
    )
