"""Prose: do both answers say the same? By their embeddings where there are any, else by their words."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

import numpy as np

from penstock.aio.judges.numbers import numbers, plain, same
from penstock.aio.judges.verdict import Embed, Outcome, Pair, Verdict

NAME: Final = "embedding"
LEXICAL_NAME: Final = "words"
_WORD: Final = re.compile(r"\w+")
_NEGATION: Final = re.compile(r"\b(?:not|no|never|none|cannot|without)\b|n't\b", re.IGNORECASE)
_Curve = tuple[tuple[float, ...], tuple[float, ...]]
# Similarity of two answers and the probability that goes with it. MiniLM between two models' answers to one
# question of GSM8K: 0.92 where the low one was right, 0.89 where it was wrong, 0.26 between answers to
# different questions. So similarity shows who has missed the subject, and hardly who is right.
_EMBEDDING: Final[_Curve] = ((0.45, 0.6, 0.75, 0.9, 1.0), (0.03, 0.15, 0.4, 0.65, 0.9))
_LEXICAL: Final[_Curve] = ((0.1, 0.4, 0.8, 1.0), (0.3, 0.45, 0.65, 0.9))
_SAME, _DIFFERENT = 0.65, 0.15  # scores from which it is called
_SHORT: Final = 400  # characters
_CHARACTERS: Final = 4000  # of each answer that are compared


def judge_prose(pair: Pair, embed: Embed | None) -> Verdict:
    low, expert = pair.low.strip()[:_CHARACTERS], pair.expert.strip()[:_CHARACTERS]
    if _words(low) == _words(expert):
        return Verdict(0.98, "same", NAME if embed else LEXICAL_NAME, "prose")
    if embed:
        vectors = embed([low, expert])
        similar, curve, name = float(vectors[0] @ vectors[1]), _EMBEDDING, NAME
    else:
        similar, curve, name = _cosine(low, expert), _LEXICAL, LEXICAL_NAME
    score = float(np.interp(similar, *curve))
    # Short answers stand and fall with their facts: numbers that differ, or a "not" in one of them.
    if len(low) < _SHORT and len(expert) < _SHORT and not _facts_agree(low, expert):
        return Verdict(round(0.4 * score, 4), "unclear", name, "prose")
    outcome: Outcome = "same" if score >= _SAME else "expert_better" if score <= _DIFFERENT else "unclear"
    return Verdict(round(score, 4), outcome, name, "prose")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _cosine(a: str, b: str) -> float:
    first, second = Counter(_words(a)), Counter(_words(b))
    for bag in (first, second):
        for word, count in bag.items():
            bag[word] = 1 + int(math.log2(count))
    dot = sum(count * second[word] for word, count in first.items())
    size = math.sqrt(sum(c * c for c in first.values()) * sum(c * c for c in second.values()))
    return dot / size if size else 0.0


def _facts_agree(a: str, b: str) -> bool:
    if bool(_NEGATION.search(a)) != bool(_NEGATION.search(b)):
        return False
    first, second = numbers(plain(a)), numbers(plain(b))
    if not first or not second:
        return True
    return any(same(x, y) for x in first for y in second)
