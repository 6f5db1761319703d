"""A trace file: requests of one's own and their moments, one JSON object on each line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from penstock.errors import ConfigError

MOST_TOKENS = 2**24  # of one prompt: more is a mistake in the file
Tokens = Annotated[int, Meta(ge=1, le=MOST_TOKENS)]

HELP = (
    'A JSONL file of requests, one object on each line: "at" (seconds after the start), "output_len" '
    '(tokens), and either "prompt" (a text or token ids) or "input_len" (random tokens); with "input_len" '
    'also "prefix_len" tokens in front that all requests of the same "prefix_id" share.'
)


class TraceLine(Struct, frozen=True, forbid_unknown_fields=True):
    """One request of a trace. Lengths are in tokens; `prefix_len` comes beside `input_len`."""

    at: Annotated[float, Meta(ge=0)]  # seconds after the start
    output_len: Tokens
    prompt: str | list[Annotated[int, Meta(ge=0)]] | None = None
    input_len: Tokens | None = None
    prefix_len: Annotated[int, Meta(ge=0, le=MOST_TOKENS)] = 0
    prefix_id: str | int = ""


_decoder = msgspec.json.Decoder(TraceLine)


def read_trace(path: str, *, speed: float = 1.0) -> tuple[TraceLine, ...]:
    """The requests of a file in the order of their moments, `speed` times as fast as they came."""
    if not 0 < speed < float("inf"):
        raise ConfigError(f"--speed must be above 0 (2 is twice as fast), got {speed}.")
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--trace names {path}, which cannot be read: {error.strerror}.") from None
    lines = [
        _read_line(path, number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()
    ]
    if not lines:
        raise ConfigError(f"--trace names {path}, which has no requests.")
    lines.sort(key=lambda line: line.at)
    return tuple(msgspec.structs.replace(line, at=line.at / speed) for line in lines)


def _read_line(path: str, number: int, text: bytes) -> TraceLine:
    try:
        line = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}, line {number}: {error}.") from None
    if (line.prompt is None) == (line.input_len is None):
        raise ConfigError(f'{path}, line {number}: give either "prompt" or "input_len".')
    if line.prompt is not None and not line.prompt:
        raise ConfigError(f'{path}, line {number}: the "prompt" is empty.')
    if line.prefix_len and line.prompt is not None:
        raise ConfigError(f'{path}, line {number}: "prefix_len" goes with "input_len", not with "prompt".')
    return line
