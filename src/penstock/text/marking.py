"""Keeping a user's text from being read as control tokens.

A template mixes control tokens of its own with text of the user's into one string. Before it does,
every place in the user's text where a control token could begin is broken by a private-use
character that occurs nowhere else. What is whole in the result is the template's own; then the
marks are taken out again, and the user's text is what it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.errors import InvalidRequestError

_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U000ffffd]")
_CANDIDATES = (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE))


class ControlText:
    """The control tokens of one vocabulary, as text that must not be whole in a user's string."""

    def __init__(self, control: Iterable[str]) -> None:
        # A token of one character cannot be broken; such are never taken from a rendered template either.
        tokens = sorted((text for text in control if len(text) > 1), key=len, reverse=True)
        self._beginnings = frozenset(text[:length] for text in tokens for length in range(1, len(text)))
        self._longest = max(map(len, tokens), default=1) - 1
        alternatives = "|".join(map(re.escape, tokens))
        # A look-ahead, so that tokens which overlap are all broken.
        self._pattern = re.compile(f"(?=(?:{alternatives}))(.)", re.DOTALL) if tokens else None

    def marked(self, value: Any, mark: str) -> Any:
        """A copy of plain data in which no string, keys included, holds or begins a control token."""
        if isinstance(value, str):
            return self._marked_text(value, mark)
        if isinstance(value, dict):
            return {self.marked(key, mark): self.marked(item, mark) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.marked(item, mark) for item in value]
        return value

    def _marked_text(self, text: str, mark: str) -> str:
        if self._pattern is None:
            return text
        text = self._pattern.sub(rf"\g<1>{mark}", text)
        # A template may put another string of the user's right behind this one, and trim both.
        end = len(text.rstrip())
        for length in range(1, min(self._longest, end) + 1):
            start = end - length
            if text[start:end] in self._beginnings:
                text = f"{text[: start + 1]}{mark}{text[start + 1 :]}"
                end += 1
        return text


def unused_characters(count: int, values: Iterable[Any]) -> list[str]:
    """Private-use characters that occur in none of the strings of this plain data."""
    used = {character for text in _strings(values) for character in _PRIVATE.findall(text)}
    found = []
    for code in _CANDIDATES:
        if chr(code) not in used:
            found.append(chr(code))
            if len(found) == count:
                return found
    raise InvalidRequestError(
        "The messages use every private-use character of Unicode, which leaves none to work with.",
        param="messages",
    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
