"""Numbers as people and models write them: separators, fractions, percent, money, units, LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_MARKS: Final = re.compile(r"<<[^<>\n]{0,200}>>")  # a calculator's notes, as GSM8K trains them
_LATEX: Final = (
    (re.compile(r"\\[dt]?frac\s*\{\s*(-?[\d.,]+)\s*\}\s*\{\s*([\d.,]+)\s*\}"), r"\1/\2"),
    (re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)"), r"\1/\2"),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\{,\}|\\,|\\!"), ""),
    (re.compile(r"\\[;: ]|\\(?:left|right|quad|displaystyle)\b"), " "),
    (re.compile(r"\\times|\\cdot|×|·|⋅|\\\*"), "*"),
    (re.compile(r"\\div|÷"), "/"),
    (re.compile(r"\\([%$#])"), r"\1"),
    (re.compile(r"\\[()\[\]]"), " "),
    (re.compile("[−–](?=\\d)"), "-"),  # a minus sign or a dash, as typesetters have it
)
_NUMBER: Final = re.compile(
    r"""(?<![\w.,])(?P<sign>[-+](?=[$€£¥\d.]))?\s?(?P<money>[$€£¥])?\s?(?P<sign2>-)?
    (?P<whole>\d{1,3}(?:[,\u00a0\u202f']\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3})+,\d+|\d+(?:[.,]\d+)?|\.\d+)
    (?::(?P<minutes>[0-5]\d)(?!\d))?
    (?:[eE](?P<power>[+-]?\d{1,2})(?![\w.]))?
    (?:\s?(?P<over>/)\s?(?P<below>\d+(?:\.\d+)?)(?![\w/]))?
    (?P<ordinal>st|nd|rd|th)?\b
    (?:\s?(?P<percent>%|percent\b|per\ cent\b))?
    (?:\s?(?P<scale>thousand|million|billion|trillion)\b)?
    (?:[\s-]?(?P<unit>[A-Za-z°µ]{1,12})\b)?""",
    re.VERBOSE,
)
_SCALES: Final = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_COUNT: Final = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen"
    "|seventeen|eighteen|nineteen|twenty"
)
_WORDS: Final = {word: float(value) for value, word in enumerate(_COUNT.split("|"))}
_WORD: Final = re.compile(rf"\b(?:{_COUNT})\b", re.IGNORECASE)
# How many of a dimension's smallest unit each unit is.
_DIMENSIONS: Final[dict[str, dict[str, float]]] = {
    "time": {
        "second|seconds|sec|secs|s": 1,
        "minute|minutes|min|mins": 60,
        "hour|hours|hr|hrs|h": 3600,
        "day|days": 86400,
        "week|weeks": 604800,
    },
    "length": {"mm": 1, "cm": 10, "m|meter|meters|metre|metres": 1000, "km|kilometers|kilometres": 1e6},
    "imperial": {"inch|inches": 1, "foot|feet|ft": 12, "yard|yards": 36, "mile|miles": 63360},
    "mass": {"mg": 1, "g|gram|grams": 1e3, "kg|kilogram|kilograms": 1e6},
    "weight": {"ounce|ounces|oz": 1, "pound|pounds|lb|lbs": 16},
    "volume": {"ml|milliliters|millilitres": 1, "l|liter|liters|litre|litres": 1000},
    "money": {"cent|cents": 1, "dollar|dollars|usd": 100},
}
_UNITS: Final[dict[str, tuple[str, float]]] = {
    name: (dimension, size)
    for dimension, sizes in _DIMENSIONS.items()
    for names, size in sizes.items()
    for name in names.split("|")
}


@dataclass(frozen=True, slots=True)
class Number:
    value: float
    decimals: int = 0  # digits after the point
    percent: bool = False
    unit: str = ""  # in lower case; empty where none stands beside it
    money: bool = False
    start: int = 0  # where it stands in the text that was read
    end: int = 0


def plain(text: str) -> str:
    """Without a calculator's notes and the LaTeX that stands around numbers."""
    text = _MARKS.sub("", text)
    if "\\" in text or "×" in text or "−" in text or "–" in text or "·" in text or "÷" in text:
        for pattern, to in _LATEX:
            text = pattern.sub(to, text)
    return text.replace("**", "").replace("`", "")


def numbers(text: str, *, words: bool = False) -> list[Number]:
    """All numbers of a plain text, in order; those in words up to twenty if asked for."""
    found = list(_digits(text))
    if words:
        found += [
            Number(_WORDS[match[0].lower()], start=match.start(), end=match.end())
            for match in _WORD.finditer(text)
        ]
        found.sort(key=lambda number: number.start)
    return found


def _digits(text: str) -> Iterator[Number]:
    for match in _NUMBER.finditer(text):
        value, decimals = _value(match["whole"])
        if match["minutes"]:  # a time of day
            value, decimals = value + int(match["minutes"]) / 60, 12
        if match["power"]:
            value *= 10.0 ** int(match["power"])
        end = match.end("whole")
        if match["over"]:
            below = float(match["below"])
            if below:
                value, decimals, end = value / below, 12, match.end("below")
        if match["scale"]:
            value, end = value * _SCALES[match["scale"].lower()], match.end("scale")
        if "-" in (match["sign"], match["sign2"]):
            value = -value
        yield Number(
            value,
            decimals,
            percent=bool(match["percent"]),
            unit=(match["unit"] or "").lower(),
            money=bool(match["money"]),
            start=match.start("whole"),
            end=end,
        )


def _value(written: str) -> tuple[float, int]:
    whole = written.replace("\u00a0", "").replace("\u202f", "").replace("'", "")
    if "," in whole:
        head, _, tail = whole.rpartition(",")
        if "." in tail or (len(tail) == 3 and "." not in head):
            whole = whole.replace(",", "")  # 1,234 and 1,234.5
        else:
            whole = head.replace(".", "") + "." + tail  # 1.234,5 and 3,5
    return float(whole), len(whole.partition(".")[2])


def same(a: Number, b: Number) -> bool:
    """Equal as far as the coarser of the two was written; percents and units are turned into one another."""
    if _close(a, b, 1.0):
        return True
    if a.percent != b.percent:
        return _close(a, b, 100.0 if a.percent else 0.01)
    first, second = _UNITS.get(a.unit), _UNITS.get(b.unit)
    if first and second and first[0] == second[0] and first[1] != second[1]:
        return _close(a, b, second[1] / first[1])
    return False


def _close(a: Number, b: Number, factor: float) -> bool:
    """Whether a is b times a factor."""
    other = b.value * factor
    if abs(a.value - other) <= 1e-6 * max(1.0, abs(a.value)):
        return True
    decimals = min(a.decimals, b.decimals)
    return decimals >= 1 and factor == 1.0 and abs(a.value - other) <= 0.5000001 * 10.0**-decimals
