"""What two questions must not differ in, one check each: a reason to refuse, or None."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from penstock.gateway.cache.verify.content import content, reworded, shown
from penstock.gateway.cache.verify.lexicon import NO_SUPERLATIVES, OPPOSITES, SUPERLATIVES
from penstock.gateway.cache.verify.order import order
from penstock.gateway.cache.verify.reading import Reading
from penstock.gateway.cache.verify.stems import stem

Check = Callable[[Reading, Reading, float], str | None]
# There are more ways to put such questions than the patterns know.
_OPEN: Final = frozenset({"HOWTO", "HOW", "WHAT", "WHY", "HAPPEN", "FEEL"})
_CLOSED: Final = frozenset({"YESNO", "POSSIBLE"})
_COMPARING: Final = frozenset({"DIFFER", "BETTER"})


def numbers(a: Reading, b: Reading, similarity: float) -> str | None:
    first, second = Counter(a.numbers), Counter(b.numbers)
    return None if first == second else f"numbers differ: {shown(first - second)} / {shown(second - first)}"


def negation(a: Reading, b: Reading, similarity: float) -> str | None:
    return None if a.negations == b.negations else "one of them is negated"


def opposites(a: Reading, b: Reading, similarity: float) -> str | None:
    first = a.words | {stem(word) for word in a.words}
    second = b.words | {stem(word) for word in b.words}
    for left, right in OPPOSITES:
        for one, other in ((left, right), (right, left)):
            if first & one and second & other and not first & other and not second & one:
                return f"opposites: {shown(first & one)} / {shown(second & other)}"
    return None


def kind(a: Reading, b: Reading, similarity: float) -> str | None:
    if a.kinds == b.kinds:
        return None
    both = a.kinds | b.kinds
    if (both <= _OPEN or both <= _CLOSED) and reworded(a, b) and content(a, b, similarity) is None:
        return None
    return f"different questions: {shown(a.kinds)} / {shown(b.kinds)}".lower()


def modality(a: Reading, b: Reading, similarity: float) -> str | None:
    """Whether something is, was, will or should be. A verb's own past is not seen: it may stand for "was"."""
    differing = a.modals ^ b.modals
    if not differing - {"past", "present"} and ("past" not in differing or "present" not in differing):
        return None
    return f"different times or moods: {shown(a.modals)} / {shown(b.modals)}"


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
    return f"names differ: {shown(missing)}" if missing else None


def plurals(a: Reading, b: Reading, similarity: float) -> str | None:
    """A name with another ending is another name: who directed Alien, and who Aliens."""
    for one, other in ((a, b), (b, a)):
        for name in one.written - other.words:
            singular = {name.removesuffix("s"), name.removesuffix("es")}
            if other.words & {f"{name}s", f"{name}es", *singular} - {name}:
                return f"names differ in their ending: {name}"
    return None


def joins(a: Reading, b: Reading, similarity: float) -> str | None:
    """Both of them, or one of them. Where two things are compared, it makes no difference."""
    if a.kinds | b.kinds <= _COMPARING:
        return None
    first, second = _joined(a), _joined(b)
    if any(first[word] != second[word] for word in first.keys() & second.keys()):
        return "'and' in one stands where 'or' stands in the other"
    sides = set(first.values()), set(second.values())
    if len(sides[0]) == len(sides[1]) == 1 and sides[0] != sides[1]:
        return "'and' in one stands where 'or' stands in the other"
    return None


def _joined(reading: Reading) -> dict[str, str]:
    """Each word behind an "and" or an "or", with that."""
    found = zip(reading.content, reading.before, strict=True)
    return {
        word: join
        for word, gap in found
        for join in ("and", "or")
        if join in gap and not {"and", "or"} <= gap
    }


def superlatives(a: Reading, b: Reading, similarity: float) -> str | None:
    """The best of what: a superlative goes with the word behind it."""
    first, second = _superlatives(a), _superlatives(b)
    for word in first.keys() & second.keys():
        behind = {first[word], second[word]}
        if len(behind) > 1 and behind & {*a.content} & {*b.content}:
            return f"{word!r} is said of different things: {shown(behind)}"
    if first and second and not first.keys() & second.keys():
        return f"superlatives differ: {shown(first)} / {shown(second)}"
    return None


def _superlatives(reading: Reading) -> dict[str, str]:
    """Each superlative and the word behind it."""
    return {
        word: behind
        for word, behind in zip(reading.content, [*reading.content[1:], ""], strict=False)
        if word in SUPERLATIVES or (len(word) > 5 and word.endswith("est") and word not in NO_SUPERLATIVES)
    }


CHECKS: Final[dict[str, Check]] = {
    "numbers": numbers,
    "negation": negation,
    "opposites": opposites,
    "names": names,
    "plurals": plurals,
    "joins": joins,
    "kind": kind,
    "modality": modality,
    "persons": persons,
    "quotes": quotes,
    "superlatives": superlatives,
    "content": content,
    "order": order,
}
