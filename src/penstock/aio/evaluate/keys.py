"""One name for one question, however a file dresses it: what keeps a question on one side of a split.

The options of a multiple-choice question, `Question:` before it, `Answer:` after it, case, spaces and
punctuation do not matter, so that the same question in MMLU and in MMLU-Pro, or in two copies of GSM8K, has
one key.
"""

from __future__ import annotations

import hashlib
import re

_OPTIONS = re.compile(r"\n\s*(?:options:\s*)?\(?A[.):]\s", re.IGNORECASE)
_BEFORE = re.compile(r"^\s*(?:q|question|problem|query)\s*:\s*", re.IGNORECASE)
_AFTER = re.compile(r"\s*(?:a|answer|solution)\s*:\s*$", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_SHORT = 12  # characters: below, the stem alone ("Choose one:") is no question, and its options belong to it


def question_key(text: str) -> str:
    """16 hexadecimal digits that are the same for the same question."""
    plain = _AFTER.sub("", _BEFORE.sub("", text))
    words = _words(_OPTIONS.split(plain, maxsplit=1)[0])
    if len(words) < _SHORT:
        words = _words(plain) or text
    return hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))
