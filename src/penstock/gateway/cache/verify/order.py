"""Who does what to whom: the same words in another order, and "from A to B" against "from B to A"."""

from __future__ import annotations

from collections import Counter

from penstock.gateway.cache.verify.content import reworded
from penstock.gateway.cache.verify.lexicon import BOUNDARIES, DIRECTIONS, SYMMETRIC
from penstock.gateway.cache.verify.reading import Reading


def order(a: Reading, b: Reading, similarity: float) -> str | None:
    """The same words in another order: fine where one part of the sentence stands elsewhere, and no more."""
    if a.directions & {(to, source) for source, to in b.directions}:
        return "the direction differs"
    first, second = _common(a, b), _common(b, a)
    if [a.content[place] for place in first] == [b.content[place] for place in second]:
        return None
    if reworded(a, b):
        return None  # then words need not stand where they stood
    moved = _moved([a.content[place] for place in first], [b.content[place] for place in second])
    if moved is None:
        return "the order differs"
    start, turn, end = moved
    here, there = a.before[first[turn]], b.before[second[start + end - turn]]  # at the joint of both parts
    if here & there & DIRECTIONS.keys():
        return "the direction differs"  # both sides of the same preposition change places
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
