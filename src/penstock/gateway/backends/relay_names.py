"""The model's name in an answer: the client reads the name it asked for, whatever the server calls it."""

from __future__ import annotations

import re
from typing import Final

import msgspec

# A JSON string cannot hold this by chance: within one, the quotes would be escaped.
_MODEL: Final = re.compile(rb'"model"\s*:\s*"(?:[^"\\]|\\.)*"')


class Renaming:
    """Learns how the server writes the name when it is first seen, then replaces those very bytes."""

    __slots__ = ("_found", "_new", "_old")

    def __init__(self, name: str) -> None:
        self._new = b'"model":' + msgspec.json.encode(name)
        self._old = b""
        self._found = False

    def __call__(self, data: bytes) -> bytes:
        if not self._found:
            match = _MODEL.search(data)
            if match is None:
                return data
            self._found = True
            self._old = match.group()
        return data if self._old == self._new else data.replace(self._old, self._new)


def renamed(body: bytes, name: str) -> bytes:
    """An unstreamed answer under this name: its first `model`, which is its own."""
    match = _MODEL.search(body)
    if match is None:
        return body
    new = b'"model":' + msgspec.json.encode(name)
    return body if match.group() == new else body[: match.start()] + new + body[match.end() :]
