"""Whether two questions say the same: the same words, but for what makes no difference to the vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final

from penstock.gateway.cache.verify.lexicon import (
    CONTRASTS,
    NEGATIONS,
    ONESELF,
    STRICT,
    SYMMETRIC,
    WEIGHTY,
)
from penstock.gateway.cache.verify.reading import Reading
from penstock.gateway.cache.verify.stems import stem

# How far apart the vectors of two texts may be: 1 - cosine, times the number of their words, for each word
# that differs (one among many moves a vector less). Where one word was changed or added, the likeness is
# mostly that of the words around it; where several were changed on both sides and the vectors still agree,
# it is one of meaning. Set between pairs that were written for it, of which the tests have some: where
# several words were changed, those that ask the same were below 0.30, the others above 0.40.
ADDED: Final = 0.15
CHANGED: Final = 0.16
REWORDED: Final = 0.35
REPHRASED: Final = 0.25  # where even what is asked for is put in another way
REWORDED_SIMILARITY: Final = 0.8

_LISTED: Final = SYMMETRIC - {","}
# Longest first.
_ENDINGS: Final = (
    *("ation", "ition", "ment", "ness", "able", "ance", "ence"),
    *("ion", "ive", "ity", "at", "er", "or", "al"),
)


def content(a: Reading, b: Reading, similarity: float) -> str | None:
    """Why what they say differs; None: it does not, or no more than the vectors allow."""
    spoken_of = a.mention or b.mention  # words that are spoken of are meant as they are written
    first, second = (Counter(each.plain if spoken_of else each.content) for each in (a, b))
    if not first or not second:
        return "nothing to compare"
    left, right = first - second, second - first
    _drop_compounds(left, right, b)
    _drop_compounds(right, left, a)
    if not left and not right:
        return None
    changed = _changed(a, b)
    several = bool(left and right) and changed > 1
    if not first & second:
        near = 1.0 - similarity <= ADDED
    else:
        distance = (1.0 - similarity) * max(first.total(), second.total())
        if several:
            most = (REWORDED if a.kinds == b.kinds else REPHRASED) * changed
            near = similarity >= REWORDED_SIMILARITY and distance <= most
        else:
            near = distance <= (CHANGED if left and right else ADDED * (left | right).total())
    fixed = spoken_of or (left | right).keys() & _fixed(a, b, reworded=several)
    if near and not fixed and not _look_alike(left, right):
        return None
    return f"words differ: {shown(left)} / {shown(right)}"


def shown(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words))) or "nothing"


def reworded(a: Reading, b: Reading) -> bool:
    """Whether several words differ, and some on both sides by more than a known synonym."""
    first, second = Counter(a.content), Counter(b.content)
    return bool(first - second and second - first) and _changed(a, b) > 1


def _changed(a: Reading, b: Reading) -> int:
    """How many words of one text are not in the other, apart from their endings. Known synonyms are changed
    words too: the vectors had to see through them."""
    first, second = (Counter(stem(word) for word in each.plain) for each in (a, b))
    return max((first - second).total(), (second - first).total())


def _drop_compounds(words: Counter[str], others: Counter[str], other: Reading) -> None:
    """Take out words that the other text writes in two, and acronyms that it spells out."""
    for word in list(words):
        for (first, start), (second, end) in pairwise(zip(other.content, other.plain, strict=True)):
            if word in (start + end, first + second, start[0] + end[0]) and others[first] and others[second]:
                del words[word]
                others.subtract((first, second))
                break
    for gone in [word for word, count in others.items() if count <= 0]:
        del others[gone]


def _fixed(a: Reading, b: Reading, *, reworded: bool) -> set[str]:
    """Words that no likeness of the texts makes up for."""
    fixed = {*a.names, *b.names}
    weighty = STRICT | ONESELF | NEGATIONS
    if not reworded:
        weighty |= WEIGHTY | CONTRASTS
    for reading in (a, b):
        for place, (word, written) in enumerate(zip(reading.content, reading.plain, strict=True)):
            around = reading.before[place].union(*reading.before[place + 1 : place + 2])
            if (
                not (word.isascii() and word.isalpha())  # a term with digits, or of another script
                or around & _LISTED
                or (place and reading.content[place - 1] in NEGATIONS)
                or (place and reading.content[place - 1].startswith("#"))  # what is counted
                or written in weighty
            ):
                fixed.add(word)
    return fixed


def _look_alike(left: Iterable[str], right: Iterable[str]) -> bool:
    """Whether two of the words are spelt nearly alike: nitrite is no slip of the pen for nitrate."""
    return any(
        SequenceMatcher(None, one, other, autojunk=False).ratio() > 0.75 and _root(one) != _root(other)
        for one in left
        for other in right
    )


def _root(word: str) -> str:
    """Without the ending that makes a noun of a verb: of depressed and depression the same."""
    ending = next((end for end in _ENDINGS if word.endswith(end) and len(word) - len(end) >= 4), "")
    return word[: len(word) - len(ending)]
