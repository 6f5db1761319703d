"""Values that are more than a number: lists, strings, several solutions, expressions. Are they alike?"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Final

from penstock.aio.judges.final import marked
from penstock.aio.judges.numbers import numbers, plain
from penstock.aio.judges.verdict import Embed, Pair, Verdict

NAME: Final = "same value"
_LONGEST: Final = 400  # characters
_QUOTED: Final = re.compile(r"""^(?:[\[{(].*[\]})]|'.*'|".*"|b'.*')$""", re.DOTALL)
_EXPRESSION: Final = re.compile(r"√|\\sqrt|\bsqrt\(|\\pi|π|\^|\d_\{?\d|\\le|\\ge|[<>≤≥]|\d\s?i\b")
_SEVERAL: Final = re.compile(r"^[-+]?[\d.]+(?:/\d+)?(?:\s?[,;]\s?[-+]?[\d.]+(?:/\d+)?)+$")
_THOUSANDS: Final = re.compile(r"^[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?$")


def value(answer: str) -> str | None:
    """What an answer marks as its result, evened out, where that is such a value; None otherwise."""
    raw = _result(answer)
    text = plain(raw).strip()
    if not text or len(text) > _LONGEST or _THOUSANDS.match(text):
        return None
    if _QUOTED.match(raw):
        return _evened(raw)
    if _EXPRESSION.search(raw) or (_SEVERAL.match(text) and len(numbers(text)) > 1):
        return re.sub(r"\s|\\left|\\right|\\,|[{}]", "", raw)
    return None


def _result(answer: str) -> str:
    """Without the period of the sentence, and the dollars or backticks around: they are not part of it."""
    passages = marked(answer)
    return passages[0].strip().removesuffix(".").strip("`$* ") if passages else ""


def _evened(text: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return repr(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return " ".join(text.split())


def judge_value(pair: Pair, embed: Embed | None) -> Verdict:
    low, expert = value(pair.low), value(pair.expert)
    # Of a string some write the quotes and some do not.
    unquoted = {_result(answer).strip("'\"") for answer in (pair.low, pair.expert)}
    if low == expert or len(unquoted) == 1:
        return Verdict(0.97, "same", NAME, "value")
    if not marked(pair.low):
        # It may say the same without a mark, in its last words.
        tail = re.sub(r"\s", "", pair.low[-2 * _LONGEST :])
        if expert and re.sub(r"\s", "", expert) in tail:
            return Verdict(0.85, "same", NAME, "value")
        return Verdict(0.3, "unclear", NAME, "value")
    return Verdict(0.05, "expert_better", NAME, "value")
