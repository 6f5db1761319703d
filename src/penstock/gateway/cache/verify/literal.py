"""What must be the same to the letter in any text: arithmetic, marks that are part of a name, units, and
capitals where a name or an acronym is spelt like a common word."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from penstock.gateway.cache.verify.lexicon import EMPTY, NEGATIONS, SELF, YOU, words

_DASHES: Final = str.maketrans({"−": "-", "–": "-", "∗": "*", "⋅": "·", "’": "'"})
# A number, or a letter that stands for one; brackets around an operand are part of it.
_OPERAND: Final = r"\(?-?(?:\d[\d.,]*|\b[A-Za-z]\b)\)?"
# A hyphen between a word and a number makes a name or a compound ("20-year-old"), and no difference.
_MARKS: Final = re.compile(
    rf"{_OPERAND}\s*[-/:]\s*(?={_OPERAND}(?!\w))"  # between operands
    r"|(?<![\w)])-\s?(?=[\d(])|(?<=\d)\s-\s|(?<=\d)-(?!\w)"  # a sign, a dangling one
    r"|[+*×÷±·√≤≥≠≈∞∑∫]"  # nowhere anything else
    r"|(?<=\d)\s?/|/\s?(?=\d)"
    r"|(?<=\d)!|(?<![\w'])[b-hj-z]!|(?<=\d)['′″]"
    r"|(?<![\w.])[.@#](?=\w)\w+"  # .NET
)
_OPERATIONS: Final = words(
    """plus minus times divided divide multiplied multiply subtract subtracted power modulo mod squared
    cubed sum product quotient"""
)
_VALUE: Final = re.compile(r"[A-Za-z]+|\d+(?:[.,]\d+)*")
_NUMBERS: Final = words(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred
    thousand million"""
)
# Units that are others in other letters: megabits and megabytes, milliwatts and megawatts.
_UNITS: Final = words(
    "kb mb gb tb pb kbps mbps gbps mw mwh mg mv ma mm mj mpa mhz mbar mol ml pg ph db cal b g k m s w c f n"
)
_UNIT: Final = re.compile(r"(?<![A-Za-z0-9_])(\d[\d.,]*\s?)?([A-Za-z]{1,4})(?![A-Za-z0-9_'])")
# Common words that are names or acronyms in capitals. Little words are such in any case.
_NAMESAKES: Final = words(
    """turkey apple shell polish mark bill mercury amazon oracle target gap visa subway windows word excel
    access office outlook teams slack zoom meta alphabet swift rust ruby basic delta ford dove tide galaxy
    pixel surface edge chrome safari opera signal discord steam sprint virgin orange puma jaguar lincoln
    reading nice cork bath hull crow march may august rose lily daisy ivy grace hope faith joy jack frank
    rob pat sue bob nick drew chase hunter mason cook baker smith king bush rice stone woods young brown
    white black green gates jobs musk friends lost frozen cars up it her scrubs suits bones alien aliens
    gravity split saw rings cats hair rent evita genesis exodus numbers acts kings judges earth sun moon
    aids sad led ram pin sim bat bios cat pet act sat ace arc hip dare care mad pip lead sars star stem
    fast tips coma hiv pass ram rom cops gas bar mini ruler ally mint square stripe box notion asana
    linear sage block unity cursor copilot claude gemini llama falcon mistral spring flask express react
    angular go julia perl scheme racket elm dart crystal closure"""
)
_LITTLE: Final = (
    EMPTY | SELF | YOU | NEGATIONS | words("who what how when where why if he she they this all more out")
)
_PEOPLE: Final = words("will may")  # little words that are names with one capital
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z']*")
# How a count is meant; said right before it.
_BOUNDS: Final = {
    "exactly": "exact", "precisely": "exact", "about": "about", "around": "about", "roughly": "about",
    "approximately": "about", "approx": "about", "circa": "about", "nearly": "nearly", "almost": "nearly",
    "at least": "least", "no less than": "least", "no fewer than": "least", "minimum": "least",
    "at most": "most", "no more than": "most", "up to": "most", "maximum": "most", "over": "over",
    "above": "over", "more than": "over", "exceeding": "over", "under": "under", "below": "under",
    "less than": "under", "fewer than": "under",
}  # fmt: skip
_BOUND: Final = re.compile(
    rf"\b({'|'.join(sorted(_BOUNDS, key=len, reverse=True))}) (?:an? |the |of |[$€£])?"
    rf"(?=\d|(?:{'|'.join(sorted(_NUMBERS))}|half|twice|dozen)\b)"
)


def differs(a: str, b: str) -> str | None:
    """Why these texts are not the same whatever else they say; None: nothing here speaks against it."""
    first, second = (unicodedata.normalize("NFKC", text).translate(_DASHES) for text in (a, b))
    for what, signature in _SIGNATURES.items():
        if signature(first) != signature(second):
            return f"{what} differ"
    return _units(first, second) or _capitals(first, second) or _capitals(second, first)


def _arithmetic(text: str) -> tuple[str, ...]:
    """Its marks in order, each with what it stands between; and, where there are any, its numbers."""
    marks = tuple("".join(match[0].split()).lower() for match in _MARKS.finditer(text))
    found = _VALUE.findall(text.lower())
    if not marks and _OPERATIONS.isdisjoint(found):
        return ()
    # The same marks between other numbers, or the same numbers in another order, make another sum.
    return (*marks, *(word for word in found if word[0].isdigit() or word in _NUMBERS))


def _bounds(text: str) -> tuple[str, ...]:
    return tuple(_BOUNDS[match[1]] for match in _BOUND.finditer(text.lower()))


_SIGNATURES: Final[dict[str, Callable[[str], tuple[str, ...]]]] = {
    "operators, marks or numbers around them": _arithmetic,
    "bounds of numbers": _bounds,
}


def _units(a: str, b: str) -> str | None:
    first, second = _written_units(a), _written_units(b)
    for unit in first.keys() & second.keys():
        if first[unit] != second[unit]:
            return f"units differ in their letters: {unit}"
    return None


def _written_units(text: str) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for counted, unit in _UNIT.findall(text):
        # A letter alone is a unit only behind a number.
        if unit.lower() in _UNITS and (counted or len(unit) > 1):
            found.setdefault(unit.lower(), set()).add(unit)
    return {unit: frozenset(forms) for unit, forms in found.items()}


def _capitals(a: str, b: str) -> str | None:
    """Whether a name or an acronym of `a` is a common word in `b`."""
    if _shouts(a) or _shouts(b):
        return None
    named, common = _forms(a), _forms(b)
    # Who writes other names with capitals means something by a small letter.
    careful = any(word != word.lower() and word != "I" for word in _inner(b))
    for word, forms in named.items():
        other = common.get(word)
        if other is None or forms & other:
            continue
        if not all(form.islower() for form in other) or not any(form[0].isupper() for form in forms):
            continue
        acronym = any(len(form) > 1 and form.isupper() for form in forms)
        article = re.compile(rf"\b(?:a|an) {re.escape(word)}\b", re.IGNORECASE)
        if (
            word in _NAMESAKES
            or (article.search(b) and not article.search(a))  # what is Apple, what is an apple
            or (acronym and (careful or word in _LITTLE))
            or word in _PEOPLE
        ):
            return f"{word!r} is a name in one and a common word in the other"
    return None


def _shouts(text: str) -> bool:
    """Whether capitals say nothing: all, or most words have one."""
    found = _WORD.findall(text)
    return len(found) > 3 and sum(word[0].isupper() for word in found) * 3 > len(found) * 2


def _inner(text: str) -> list[str]:
    """Words that do not begin a sentence."""
    return [
        match[0]
        for match in _WORD.finditer(text)
        if text[: match.start()].rstrip(" \"'(") and text[: match.start()].rstrip(" \"'(")[-1] not in ".?!:"
    ]


def _forms(text: str) -> dict[str, set[str]]:
    forms: dict[str, set[str]] = {}
    for word in _inner(text):
        word = word.removesuffix("'s")
        forms.setdefault(word.lower(), set()).add(word)
    return forms
