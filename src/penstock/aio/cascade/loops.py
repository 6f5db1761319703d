"""Texts that have got stuck and say the same again and again."""

from __future__ import annotations

import re
from typing import Final

_WORD: Final = re.compile(r"\w+|[^\w\s]")
_TAIL: Final = 400  # words that are looked at: a loop is at the end
_LONGEST: Final = 60  # words of what is repeated
_ROUNDS: Final = 4  # the fewest times that make a loop of a phrase
_COVERED: Final = 16  # words that a loop has at the least, so that "no, no, no" is none
_CHARACTERS: Final = 12  # rounds of one character or two in a script without spaces
_RUN: Final = re.compile(rf"([^\W\d_]{{1,8}}?)\1{{{_CHARACTERS - 1},}}")


def loops(text: str) -> bool:
    """Whether it ends in a phrase said at least four times in a row."""
    words = _WORD.findall(text[-8 * _TAIL :])[-_TAIL:]
    for period in range(1, min(_LONGEST, len(words) // _ROUNDS) + 1):
        same = _repeated(words, period)
        rounds = same // period + 1
        phrase = words[-period:]
        if rounds >= _ROUNDS and same + period >= _COVERED and any(word.isalpha() for word in phrase):
            return True
    return bool(_RUN.search(text[-2 * _TAIL :]))


def _repeated(words: list[str], period: int) -> int:
    """Words at the end that are those of a period earlier. The last may be cut off, and is not looked at."""
    at = len(words) - 2
    count = 0
    while at >= period and words[at] == words[at - period]:
        at -= 1
        count += 1
    return count
