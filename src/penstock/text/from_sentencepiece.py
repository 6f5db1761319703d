"""SentencePiece's own file, tokenizer.model: a protocol buffer of pieces and of how text is normalized."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ModelError
from penstock.text.pieces import Kind, Pieces

MAX_BYTES = 64 << 20  # the largest in use have 5 MB
_VARINT, _EIGHT, _COUNTED, _FOUR = 0, 1, 2, 5  # wire types
_UNIGRAM, _BPE = 1, 2  # TrainerSpec.model_type


class _MalformedError(Exception):
    """Not a protocol buffer, or not of this kind; becomes a ModelError with the path."""


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    pieces: Pieces
    unigram: bool  # else BPE
    bos: int | None
    eos: int | None


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """Read a tokenizer.model."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ModelError(f"Cannot read {path}: {error.strerror or error}.") from None
    try:
        if len(data) > MAX_BYTES:
            raise _MalformedError(f"it has more than {MAX_BYTES >> 20} MiB")
        return _model(data)
    except (_MalformedError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is not a usable SentencePiece model: {error}. Download it again.") from None


def _model(data: bytes) -> SentencePieceModel:
    texts: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for number, value in _fields(data):
        if number == 1:
            piece = dict(_fields(_message(value)))
            texts.append(_message(piece.get(1, b"")).decode("utf-8"))
            scores.append(_number(piece.get(2, b"\0\0\0\0")))
            kinds.append(_integer(piece.get(3, Kind.NORMAL)))
        elif number == 2:
            trainer.update(_fields(_message(value)))
        elif number == 3:
            normalizer.update(_fields(_message(value)))
    if not texts:
        raise _MalformedError("it has no pieces")
    kind = _integer(trainer.get(3, _UNIGRAM))
    if kind not in (_UNIGRAM, _BPE):
        raise _MalformedError(f"it is of kind {kind}, and only unigram (1) and BPE (2) are known")
    unknown = next((number for number, kind in enumerate(kinds) if kind == Kind.UNKNOWN), None)
    return SentencePieceModel(
        pieces=Pieces(
            texts=texts,
            scores=scores,
            kinds=kinds,
            unknown=unknown,
            space_first=bool(_integer(normalizer.get(3, True))),
            single_spaces=bool(_integer(normalizer.get(4, True))),
            character_map=_message(normalizer.get(2, b"")),
        ),
        unigram=kind == _UNIGRAM,
        bos=_id(trainer.get(41, 1), kinds),
        eos=_id(trainer.get(42, 2), kinds),
    )


def _id(value: Any, kinds: list[int]) -> int | None:
    return value if isinstance(value, int) and value < len(kinds) and kinds[value] == Kind.CONTROL else None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a message's fields; fixed-width values stay bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _COUNTED:
            size, at = _varint(data, at)
        elif wire in (_FOUR, _EIGHT):
            size = 4 if wire == _FOUR else 8
        else:
            raise _MalformedError(f"it has a field of the unknown wire type {wire}")
        if at + size > len(data):
            raise _MalformedError("it is truncated")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _MalformedError("it is truncated")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _MalformedError("it has a number of more than 64 bits")


def _message(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise _MalformedError("it has a number where a message should be")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise _MalformedError("it has bytes where a number should be")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, bytes) or len(value) != 4:
        raise _MalformedError("it has a score that is no 32-bit number")
    return float(struct.unpack("<f", value)[0])
