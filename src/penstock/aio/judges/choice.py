"""Choices and yes or no: do both answers pick the same one?"""

from __future__ import annotations

import re
from typing import Final

from penstock.aio.judges.final import marked
from penstock.aio.judges.verdict import Embed, Pair, Verdict

NAME: Final = "final choice"
YES_NO_NAME: Final = "yes or no"

_OPTION: Final = re.compile(r"^\s*\(?([A-J])[).:]\s*(\S.*)$", re.MULTILINE)
_ALONE: Final = re.compile(r"^\W*(?:option|choice|answer)?\W*([A-Ja-j])\b\W*(?:$|[).:]|\n)", re.IGNORECASE)
_LETTER: Final = re.compile(r"(?<![A-Za-z'])\(?([A-J])\)?(?![A-Za-z'])")
_NAMED: Final = re.compile(r"\b(?:option|choice|answer)\s+\(?([A-J])\b", re.IGNORECASE)
_YES: Final = re.compile(r"^\W*(yes|yeah|yep|correct|true|no|nope|incorrect|false)\b", re.IGNORECASE)
_NO: Final = frozenset({"no", "nope", "incorrect", "false"})
_YES_QUESTION: Final = re.compile(
    r"(?:^|[.?!\n]\s*)(?:is|are|was|were|do|does|did|can|could|will|would|should|has|have|had|true or false)"
    r"\b[^.?!\n]*\?\s*$",
    re.IGNORECASE,
)


def options(question: str) -> dict[str, str]:
    """The choices that a question lists, by letter; empty unless they start at A and go on in order."""
    found: dict[str, str] = {}
    for letter, text in _OPTION.findall(question):
        found.setdefault(letter, text.strip())
    expected = "ABCDEFGHIJ"[: len(found)]
    return found if len(found) >= 2 and "".join(found) == expected else {}


def chosen(question: str, answer: str) -> str | None:
    """The letter that an answer picks: marked, alone, named, or by the words of an option."""
    listed = options(question)
    for passage in marked(answer):
        match = _ALONE.match(passage) or _LETTER.search(passage)
        if match:
            return match[1].upper()
    text = answer.strip()
    match = _ALONE.match(text)
    if match:
        return match[1].upper()
    named = _NAMED.findall(text)
    if named:
        return str(named[-1]).upper()
    lines = [line for line in text.splitlines() if line.strip()]
    letters = _LETTER.findall(lines[-1]) if lines else []
    if letters and letters[-1] in listed:
        return str(letters[-1])
    said = [letter for letter, words in listed.items() if len(words) > 1 and words.lower() in text.lower()]
    return said[0] if len(said) == 1 else None


def is_yes_no(question: str, answer: str) -> bool:
    return bool(_YES_QUESTION.search(question.strip())) and yes_or_no(answer) is not None


def yes_or_no(answer: str) -> bool | None:
    for passage in [*marked(answer), answer]:
        match = _YES.match(passage.strip().lstrip("*_# "))
        if match:
            return match[1].lower() not in _NO
    return None


def judge_choice(pair: Pair, embed: Embed | None) -> Verdict:
    low, expert = chosen(pair.question, pair.low), chosen(pair.question, pair.expert)
    return _compare(low, expert, NAME, "choice")


def judge_yes_no(pair: Pair, embed: Embed | None) -> Verdict:
    return _compare(yes_or_no(pair.low), yes_or_no(pair.expert), YES_NO_NAME, "yes_no")


def _compare(low: str | bool | None, expert: str | bool | None, judge: str, kind: str) -> Verdict:
    if low is None and expert is None:
        return Verdict(0.5, "unclear", judge, kind)
    if low is None:
        return Verdict(0.05, "expert_better", judge, kind)
    if expert is None:
        return Verdict(0.8, "low_better", judge, kind)
    if low == expert:
        return Verdict(0.95, "same", judge, kind)
    return Verdict(0.1, "expert_better", judge, kind)
