"""What two questions must not differ in, one check each: a reason to refuse, or None."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Final

from penstock.gateway.cache.verify.lexicon import (
    BOUNDARIES,
    CONTRASTS,
    NEGATIONS,
    OPPOSITES,
    STRICT,
    SYMMETRIC,
    WEIGHTY,
)
from penstock.gateway.cache.verify.reading import Reading
from penstock.gateway.cache.verify.stems import stem

Check = Callable[[Reading, Reading, float], str | None]
# How far apart the vectors of two texts may be: 1 - cosine, times the number of their words, for each word
# that differs (one among many moves a vector less). Where one word was changed or added, the likeness is
# mostly that of the words around it; where several were changed on both sides and the vectors still agree,
# it is one of meaning. Set on pairs that were written for it, some of which are in the tests.
ADDED: Final = 0.12
CHANGED: Final = 0.16
REWORDED: Final = 0.33
REPHRASED: Final = 0.25  # where even what is asked for is put in another way
_ENDINGS: Final = (
    "ation",
    "ition",
    "ment",
    "ness",
    "able",
    "ance",
    "ence",
    "ion",
    "ive",
    "ity",
    "at",
    "er",
    "or",
    "al",
)
_REWORDED_SIMILARITY: Final = 0.8
_OPEN: Final = frozenset({"HOWTO", "HOW", "WHAT", "WHY"})
_LISTED: Final = SYMMETRIC - {","}


def _shown(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words))) or "nothing"


def numbers(a: Reading, b: Reading, similarity: float) -> str | None:
    first, second = Counter(a.numbers), Counter(b.numbers)
    return None if first == second else f"numbers differ: {_shown(first - second)} / {_shown(second - first)}"


def negation(a: Reading, b: Reading, similarity: float) -> str | None:
    return None if a.negations == b.negations else "one of them is negated"


def opposites(a: Reading, b: Reading, similarity: float) -> str | None:
    first = a.words | {stem(word) for word in a.words}
    second = b.words | {stem(word) for word in b.words}
    for left, right in OPPOSITES:
        for one, other in ((left, right), (right, left)):
            if first & one and second & other and not first & other and not second & one:
                return f"opposites: {_shown(first & one)} / {_shown(second & other)}"
    return None


def kind(a: Reading, b: Reading, similarity: float) -> str | None:
    if a.kinds == b.kinds:
        return None
    if a.kinds | b.kinds <= _OPEN and _changed(a, b) > 1 and content(a, b, similarity) is None:
        return None  # there are more ways to put an open question than the patterns know
    return f"different questions: {_shown(a.kinds)} / {_shown(b.kinds)}".lower()


def modality(a: Reading, b: Reading, similarity: float) -> str | None:
    """Whether something is, was, will or should be. A verb's own past is not seen: it may stand for "was"."""
    differing = a.modals ^ b.modals
    if not differing - {"past", "present"} and ("past" not in differing or "present" not in differing):
        return None
    return f"different times or moods: {_shown(a.modals)} / {_shown(b.modals)}"


def persons(a: Reading, b: Reading, similarity: float) -> str | None:
    if a.persons and b.persons and a.persons[0] != b.persons[0]:
        return "one is about who asks, the other about who is asked"
    return None


def quotes(a: Reading, b: Reading, similarity: float) -> str | None:
    for one, other in ((a, b), (b, a)):
        for quote in one.quotes:
            if quote not in other.folded:
                return f"quoted in one only: {quote[:40]}"
    return None


def names(a: Reading, b: Reading, similarity: float) -> str | None:
    missing = (a.names - {*b.content}) | (b.names - {*a.content})
    return f"names differ: {_shown(missing)}" if missing else None


def superlatives(a: Reading, b: Reading, similarity: float) -> str | None:
    """The best of what: a superlative goes with the word behind it."""
    first, second = _superlatives(a), _superlatives(b)
    for word in first.keys() & second.keys():
        behind = {first[word], second[word]}
        if len(behind) > 1 and behind & {*a.content} & {*b.content}:
            return f"{word!r} is said of different things: {_shown(behind)}"
    if first and second and not first.keys() & second.keys():
        return f"superlatives differ: {_shown(first)} / {_shown(second)}"
    return None


def _superlatives(reading: Reading) -> dict[str, str]:
    """Each superlative and the word behind it."""
    return {
        word: behind
        for word, behind in zip(reading.content, [*reading.content[1:], ""], strict=False)
        if word in ("most", "least", "best", "worst") or (len(word) > 5 and word.endswith("est"))
    }


def content(a: Reading, b: Reading, similarity: float) -> str | None:
    """The same words, or all but one, and that one makes no difference to the vectors."""
    spoken_of = a.mention or b.mention  # words that are spoken of are meant as they are written
    first, second = (Counter(each.plain if spoken_of else each.content) for each in (a, b))
    if not first or not second:
        return "nothing to compare"
    left, right = first - second, second - first
    _drop_compounds(left, right, b)
    _drop_compounds(right, left, a)
    if not left and not right:
        return None
    said = f"words differ: {_shown(left)} / {_shown(right)}"
    # Words that were exchanged for known synonyms are changed too: the vectors had to see through them.
    changed = _changed(a, b)
    reworded = bool(left and right) and changed > 1
    if spoken_of or (left | right).keys() & _fixed(a, b, reworded=reworded) or _look_alike(left, right):
        return said
    if not first & second:
        return None if 1.0 - similarity <= ADDED else said
    distance = (1.0 - similarity) * max(first.total(), second.total())
    if reworded:
        least = REWORDED if a.kinds == b.kinds else REPHRASED
        return None if similarity >= _REWORDED_SIMILARITY and distance <= least * changed else said
    if left and right:
        return None if distance <= CHANGED else said
    return None if distance <= ADDED * (left | right).total() else said


def _changed(a: Reading, b: Reading) -> int:
    """How many words of one text are not in the other, apart from their endings."""
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
    fixed = {*NEGATIONS, *STRICT, *a.names, *b.names}
    if not reworded:
        fixed |= WEIGHTY
    for reading in (a, b):
        for place, (word, written) in enumerate(zip(reading.content, reading.plain, strict=True)):
            around = reading.before[place].union(*reading.before[place + 1 : place + 2])
            if (
                not (word.isascii() and word.isalpha())  # a term with digits, or of another script
                or around & _LISTED
                or (place and reading.content[place - 1] in NEGATIONS)
                or (place and reading.content[place - 1].startswith("#"))  # what is counted
                or (written in CONTRASTS and not reworded)
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


def order(a: Reading, b: Reading, similarity: float) -> str | None:
    """The same words in another order: fine where one part of the sentence stands elsewhere, and no more."""
    if a.directions & {(to, source) for source, to in b.directions}:
        return "the direction differs"
    first, second = _common(a, b), _common(b, a)
    if [a.content[place] for place in first] == [b.content[place] for place in second]:
        return None
    moved = _moved([a.content[place] for place in first], [b.content[place] for place in second])
    if moved is None:
        return "the order differs"
    start, turn, end = moved
    here, there = a.before[first[turn]], b.before[second[start + end - turn]]  # at the joint of both parts
    if here & SYMMETRIC and there & SYMMETRIC:
        return None
    parts = [a.content[place] for place in first[start:end]]
    if len(parts) == 2 and {*parts} <= a.names | b.names | {*a.numbers}:
        return "names change places"
    if a.free and b.free:
        return None
    left = a.before[first[start]] & there & BOUNDARIES
    right = here & b.before[second[start]] & BOUNDARIES
    return None if left or right else "the order differs"


def _common(a: Reading, b: Reading) -> list[int]:
    """Where the words of a stand that b has too."""
    there = Counter(b.content)
    places = []
    for place, word in enumerate(a.content):
        if there[word] > 0 and word != "not":  # "don't they" and "do they not" are the same
            there[word] -= 1
            places.append(place)
    return places


def _moved(a: list[str], b: list[str]) -> tuple[int, int, int] | None:
    """Start, joint and end of two neighbouring parts of a that change places in b; None: it takes more."""
    start = next(place for place, (one, other) in enumerate(zip(a, b, strict=True)) if one != other)
    end = len(a)
    while a[end - 1] == b[end - 1]:
        end -= 1
    for turn in range(start + 1, end):
        if a[turn:end] + a[start:turn] == b[start:end]:
            return start, turn, end
    return None


CHECKS: Final[dict[str, Check]] = {
    "numbers": numbers,
    "negation": negation,
    "opposites": opposites,
    "names": names,
    "kind": kind,
    "modality": modality,
    "persons": persons,
    "quotes": quotes,
    "superlatives": superlatives,
    "content": content,
    "order": order,
}
