"""Where an answer says what it comes to: at `####`, `\\boxed`, "the answer is", or in its conclusion."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.aio.judges.numbers import Number, numbers, plain

_MARKS: Final = re.compile(
    r"####\s*|(?:\b(?:final|correct|right|best)\s+)?\b(?:answer|solution|result)\b(?:\s+choice)?\s*"
    r"(?:(?:is|are|would be|will be|equals|comes to)\b\s*:?|[:=])\s*",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z\\$(\d-])|\n+")
_RESULT: Final = re.compile(r"[=≈]\s*(?=[-$€£¥\d.(])")

_MOST_MARKS: Final = 6
_PASSAGE: Final = 400  # characters after a mark


def boxed(text: str) -> str | None:
    """What stands in the last `\\boxed{...}`."""
    at = text.rfind("\\boxed")
    if at < 0:
        return None
    start = text.find("{", at)
    if start < 0:
        return None
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 1 : place]
    return None


def marked(text: str) -> list[str]:
    """What an answer marks as its result, the last mark first, each to the end of its line."""
    inside = boxed(text)
    passages = [] if inside is None else [inside]
    for match in reversed(list(_MARKS.finditer(text))[-_MOST_MARKS:]):
        passage = text[match.end() : match.end() + _PASSAGE].lstrip().partition("\n")[0].strip()
        if passage:
            passages.append(passage)
    return passages


@dataclass(frozen=True, slots=True)
class FinalNumber:
    """`best` is what the answer comes to; `others` stand in its conclusion and might be meant instead."""

    best: Number
    others: tuple[Number, ...] = ()
    explicit: bool = False  # marked as the result


def final_number(question: str, answer: str) -> FinalNumber | None:
    text = plain(answer)
    for inside in marked(answer):
        passage = plain(inside)
        found = numbers(passage)
        if found:
            # Models write sums after the mark too: "#### 4 + 5 = 9".
            results = [match.end() for match in _RESULT.finditer(passage)]
            best = next((number for number in found if results and number.start >= results[-1]), found[0])
            return FinalNumber(best, tuple(found), explicit=True)
    sentences = [sentence for sentence in _SENTENCE.split(text) if sentence and sentence.strip()]
    for sentence in reversed(sentences):
        found = numbers(sentence)
        if found:
            return FinalNumber(_meant(question, text, sentence, found), tuple(found))
    found = numbers(text[-400:], words=True)
    return FinalNumber(found[-1], tuple(found[-2:])) if found else None


def _meant(question: str, text: str, sentence: str, found: list[Number]) -> Number:
    """The number of a conclusion that is its result, rather than one that it repeats."""
    results = [match.end() for match in _RESULT.finditer(sentence)]
    if results:
        after = [number for number in found if number.start >= results[-1]]
        if after:
            return after[0]
    computed = {round(number.value, 6) for number in _results(text)[-1:]}
    for number in found:
        if round(number.value, 6) in computed:
            return number
    asked = {round(number.value, 6) for number in numbers(plain(question), words=True)}
    new = [number for number in found if round(number.value, 6) not in asked]
    return (new or found)[-1]


def _results(text: str) -> list[Number]:
    """What equations of a text come to, in order."""
    results = []
    for match in _RESULT.finditer(text):
        found = numbers(text[match.end() : match.end() + 40])
        if found and found[0].start <= 3:
            results.append(found[0])
    return results
