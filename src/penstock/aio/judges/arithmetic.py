"""Whether the sums that an answer writes down come out."""

from __future__ import annotations

import re
from typing import Final

from penstock.aio.judges.numbers import plain

_EQUATION: Final = re.compile(
    r"(?P<left>(?:[$(]{0,2}\d[\d,.]{0,14}%?\){0,2}\s?(?:[A-Za-z]{1,15}\s)?[-+*/x]\s?){1,8}"
    r"[$(]{0,2}\d[\d,.]{0,14}%?\){0,2})"
    r"\s?(?:[a-z]{1,15}\s)?=\s?\$?(?P<right>-?\d[\d,.]{0,14})"
)
_PART: Final = re.compile(r"\d[\d,.]*%?|[-+*/x()]")
_TOLERANCE: Final = 0.011  # of the result: models round to cents


def wrong_sums(answer: str) -> int:
    """How many of the equations between plain numbers do not hold."""
    wrong = 0
    for match in _EQUATION.finditer(plain(answer)):
        try:
            left = _Sum(_PART.findall(match["left"])).value()
            right = _number(match["right"])
        except (ValueError, ZeroDivisionError, IndexError):
            continue
        wrong += abs(left - right) > _TOLERANCE * max(1.0, abs(right))
    return wrong


def _number(written: str) -> float:
    percent = written.endswith("%")
    value = float(written.rstrip("%.,").replace(",", ""))
    return value / 100 if percent else value


class _Sum:
    """A sum of products, read from left to right; brackets bind first. At most a handful of parts."""

    def __init__(self, parts: list[str]) -> None:
        self._parts = parts
        self._at = 0

    def value(self) -> float:
        result = self._sum()
        if self._at != len(self._parts):
            raise ValueError("unbalanced")
        return result

    def _next(self) -> str:
        return self._parts[self._at] if self._at < len(self._parts) else ""

    def _sum(self) -> float:
        result = self._product()
        while self._next() in ("+", "-"):
            sign = 1 if self._parts[self._at] == "+" else -1
            self._at += 1
            result += sign * self._product()
        return result

    def _product(self) -> float:
        result = self._factor()
        while self._next() in ("*", "x", "/"):
            operator = self._parts[self._at]
            self._at += 1
            factor = self._factor()
            result = result / factor if operator == "/" else result * factor
        return result

    def _factor(self) -> float:
        part = self._parts[self._at]
        self._at += 1
        if part != "(":
            return _number(part)
        result = self._sum()
        if self._next() != ")":
            raise ValueError("unbalanced")
        self._at += 1
        return result
