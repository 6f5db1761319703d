"""Which kind of answer a question has, and so which judge can tell whether two of them are equivalent."""

from __future__ import annotations

import re
from typing import Final

from penstock.aio.judges.choice import chosen, is_yes_no, options
from penstock.aio.judges.code import blocks
from penstock.aio.judges.document import document, is_document, wants_json
from penstock.aio.judges.final import final_number, marked
from penstock.aio.judges.numbers import numbers, plain
from penstock.aio.judges.value import value

_QUANTITY: Final = re.compile(
    r"\bhow (?:many|much|far|long|old|tall|fast|often|big|large|heavy|high|deep)\b"
    r"|\bwhat (?:is|was|are|were|would be|will be|will) (?:the |his |her |its |their )?"
    r"(?:\w+ ){0,3}(?:number|amount|sum|total|cost|price|value|percent(?:age)?|probability|average|area"
    r"|volume|perimeter|speed|rate|distance|age|weight|height|ratio|profit|product|remainder|difference)\b"
    r"|\bwhat percent(?:age)?\b|\b(?:calculate|compute|evaluate|solve)\b",
    re.IGNORECASE,
)
_SHORT: Final = 80  # characters of an answer that is hardly more than its result
_SENTENCES: Final = 240  # characters of one that has no room for an essay
_EQUATION: Final = re.compile(r"=\s?[-$(]{0,2}\s?\d")


def kind_of(question: str, low: str, expert: str) -> str:
    """One of the kinds that have a judge; decided by the question and the expert's answer first."""
    return next(kind for kind, fits in _KINDS if fits(question, low, expert))


def _is_json(question: str, low: str, expert: str) -> bool:
    found = is_document(document(low)), is_document(document(expert))
    return all(found) or (any(found) and wants_json(question))


def _is_code(question: str, low: str, expert: str) -> bool:
    """Answers that are mostly code."""
    return any(sum(len(text) for _, text in blocks(answer)) * 3 > len(answer) for answer in (expert, low))


def _is_choice(question: str, low: str, expert: str) -> bool:
    return bool(options(question)) and (chosen(question, expert) or chosen(question, low)) is not None


def _is_yes_no(question: str, low: str, expert: str) -> bool:
    return is_yes_no(question, expert) or is_yes_no(question, low)


def _is_value(question: str, low: str, expert: str) -> bool:
    return value(expert) is not None or (value(low) is not None and bool(marked(expert)))


def _is_number(question: str, low: str, expert: str) -> bool:
    if final_number(question, expert) is None and final_number(question, low) is None:
        return False
    worked = bool(_EQUATION.search(plain(expert)))
    given = len(numbers(plain(question), words=True)) >= 2
    if _QUANTITY.search(question) and (worked or given or len(expert) <= _SENTENCES):
        return True
    if any(numbers(plain(passage[:_SHORT])) for passage in marked(expert)[:1] if len(passage) <= _SHORT):
        return True
    if len(expert.strip()) <= _SHORT // 2 and numbers(plain(expert)):
        return True
    return worked and given


# In this order: a list of options beats the numbers in it.
_KINDS: Final = (
    ("json", _is_json),
    ("choice", _is_choice),
    ("code", _is_code),
    ("value", _is_value),
    ("number", _is_number),
    ("yes_no", _is_yes_no),
    ("prose", lambda question, low, expert: True),
)
