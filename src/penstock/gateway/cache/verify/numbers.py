"""Numbers as people write them in questions, each as one token: digits, words, ordinals, money, percent."""

from __future__ import annotations

import re
from typing import Final

# fmt: off
_UNITS: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS: Final = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth",
    "nineteenth", "twentieth",
)
_SCALES: Final = {
    "hundred": 10**2, "thousand": 10**3, "k": 10**3, "lakh": 10**5, "lac": 10**5, "lakhs": 10**5,
    "million": 10**6, "mn": 10**6, "crore": 10**7, "crores": 10**7, "billion": 10**9, "bn": 10**9,
    "trillion": 10**12,
}
_ROMAN: Final = {
    "II": 2, "III": 3, "IV": 4, "VI": 6, "VII": 7, "VIII": 8, "IX": 9, "XI": 11, "XII": 12, "XIII": 13,
    "XIV": 14, "XV": 15, "XVI": 16, "XX": 20,
}
# fmt: on
_VALUES: Final = {
    **{word: value for value, word in enumerate(_UNITS)},
    **{word: 10 * value for value, word in enumerate(_TENS, start=2)},
}
_ROMAN_NUMBER: Final = re.compile(rf"\b(?:{'|'.join(sorted(_ROMAN, key=len, reverse=True))})\b")
_MONEY: Final = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee"}
_SIGN_FIRST: Final = re.compile(
    r"([$€£¥₹])\s?(\d[\d.,]*\d|\d)((?:\s?(?:k|mn|bn)|\s(?:thousand|million|billion|trillion))?\b)"
)
_DIGITS: Final = re.compile(r"(?P<value>\d[\d,]*(?:\.\d+)?)(?P<after>st|nd|rd|th|k|%)?")
_GLUED: Final = re.compile(
    r"(?<![\w.])(\d+(?:[.,]\d+)*)(kg|kgs|g|mg|km|kms|cm|mm|m|ft|lb|lbs|ml|l|gb|tb|mb|hrs?|mins?|secs?|yrs?|"
    r"usd|inr|rs|v|w|hz|ghz|mhz)\b"
)


def spell_out(text: str) -> str:
    """Before lower case: Roman numbers as digits, signs of money and percent as words behind the number."""
    text = _ROMAN_NUMBER.sub(lambda match: str(_ROMAN[match[0]]), text)
    text = _SIGN_FIRST.sub(lambda match: f"{match[2]}{match[3]} {_MONEY[match[1]]} ", text)
    return text.replace("%", " percent ")


def parted(text: str) -> str:
    """In lower case: "20kg" as "20 kg"."""
    return _GLUED.sub(r"\1 \2", text)


def number(word: str) -> str | None:
    """What a token is worth, as digits with a mark; an ordinal is not a count. None: it is no number."""
    if match := _DIGITS.fullmatch(word):
        value = match["value"].replace(",", "")
        if "." in value:
            value = value.rstrip("0").rstrip(".") if not value.count(".") > 1 else value
        after = match["after"]
        if after == "k":
            return _counted(float(value) * 1000)
        return f"#{value.lstrip('0') or '0'}{'.' if after in ('st', 'nd', 'rd', 'th') else ''}"
    if word in _VALUES:
        return f"#{_VALUES[word]}"
    if word in _ORDINALS:
        return f"#{_ORDINALS.index(word) + 1}."
    return None


def scale(word: str) -> int | None:
    return _SCALES.get(word)


def joined(first: str, second: str) -> str | None:
    """Two words that make one number, as twenty five or 2 million; None if they do not."""
    value, factor = number(first), scale(second)
    if value is not None and factor is not None and not value.endswith("."):
        return _counted(float(value[1:]) * factor) if value.count(".") <= 1 else None
    if first in _TENS and second in _UNITS[1:10]:
        return f"#{_VALUES[first] + _VALUES[second]}"
    return None


def _counted(value: float) -> str:
    return f"#{value:.15g}"
