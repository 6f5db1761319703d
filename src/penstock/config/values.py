"""From what a person writes to a typed value: `32k`, `2GiB`, `20ms`, `a,b`, `on`.

Each parser takes text (flags, environment) or what YAML made of it, and raises ValueError
when the value is not of its kind. `expects` completes the sentence "port must be ...".
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

MOST = 10**15  # of anything that is counted: sums and products of such numbers are exact and quick
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_INTEGER = re.compile(r"([+-]?\d[\d_]*)")
_SCALED = re.compile(r"(\d+(?:\.\d+)?) ?([kKmMgGtT])")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kKmMgGtT]?)(i?[bB])?")
_DURATION = re.compile(r"(.*?) ?(ms|s|m)?")
_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}
_SENDABLE = re.compile(r"[\x21-\x7e]+")  # what the head of a request may carry
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: how it is parsed, described in an error, and shown in help."""

    parse: Callable[[Any], Any]
    expects: str
    metavar: str


class UnfitError(ValueError):
    """A value that is refused for a reason of its own: `str()` completes "url ..."; `quote` it or not."""

    def __init__(self, predicate: str, *, quote: bool = True) -> None:
        super().__init__(predicate)
        self.quote = quote


def parse_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


def parse_integer(value: object) -> int:
    """Lower-case suffixes are decimal, upper-case ones binary: 32k is 32,000 and 32K is 32,768."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = parse_text(value)
    if match := _INTEGER.fullmatch(text):
        return int(match[1])
    if match := _SCALED.fullmatch(text):
        number, suffix = match.groups()
        if suffix.islower():
            return _whole(float(number) * 1000 ** _POWERS[suffix])
        if "." not in number:
            return int(number) * int(1024 ** _POWERS[suffix.lower()])
    raise ValueError


def parse_size(value: object) -> int:
    """Bytes. `MB` is decimal, `MiB` and a bare `M` are binary, a bare `m` is decimal."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(parse_text(value))
    if match is None:
        raise ValueError
    number, prefix, unit = match.groups()
    binary = unit.startswith("i") if unit else prefix.isupper()
    if unit and unit.startswith("i") and not prefix:
        raise ValueError
    return _finite(float(number) * (1024 if binary else 1000) ** _POWERS[prefix.lower()])


def parse_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    try:
        number = float(value)
    except OverflowError:
        raise ValueError from None
    if not math.isfinite(number):
        raise ValueError
    return number


def parse_seconds(value: object) -> float:
    if not isinstance(value, str):
        return parse_number(value)
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError
    return parse_number(match[1]) * _DURATIONS[match[2]]


def parse_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = parse_text(value).lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError


def parse_names(value: object) -> tuple[str, ...]:
    """One name, several with commas between them, or a list."""
    if isinstance(value, str):
        names = [part.strip() for part in value.split(",")]
    elif isinstance(value, list | tuple):
        names = [name for part in value for name in parse_names(parse_text(part))]
    else:
        raise ValueError
    if not all(names):
        raise ValueError
    return tuple(dict.fromkeys(names))  # a name given twice is one name


def parse_mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError
    return dict(value)


def parse_pairs(value: object) -> dict[str, str]:
    pairs = parse_mapping(value)
    if not all(isinstance(text, str) for text in pairs.values()):
        raise ValueError
    return pairs


def parse_url(value: object) -> str:
    """An http address, without the slash at its end. Whoever puts a secret into one is not quoted."""
    text = parse_text(value)
    if "@" in text.rpartition("://")[2].partition("/")[0]:
        raise UnfitError("holds a name or password; give the key as api_key or in headers", quote=False)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UnfitError("is not an address") from None
    if "://" not in text:
        raise UnfitError("has no scheme; write http:// or https:// before it")
    if parts.scheme not in ("http", "https"):
        raise UnfitError("must be http or https")
    if not parts.hostname or port == 0 or not _SENDABLE.fullmatch(text):
        raise UnfitError("is not an address" if text.isascii() else "is not an address: it must be ASCII")
    if "?" in text or "#" in text:
        raise UnfitError("must end before the '?' or '#'; what is asked is added to it", quote=False)
    return text.rstrip("/")


def one_of(choices: Sequence[str]) -> Kind:
    """One of these words; dashes are as good as underscores."""

    def parse(value: object) -> str:
        word = parse_text(value).replace("-", "_")
        if word in choices:
            return word
        nearest = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
        hint = f" (the nearest is {nearest[0]!r})" if nearest else ""
        raise UnfitError(f"must be one of {', '.join(choices)}{hint}")

    return Kind(parse, f"one of {', '.join(choices)}", "WORD")


def _from(parse: Callable[[Any], Any], least: float, *, most: float = math.inf, above: bool = False) -> Any:
    """A parser that also refuses what is below `least` (or equal to it, with `above`) or over `most`."""

    def bounded(value: object) -> Any:
        number = parse(value)
        if number < least or number > most or (above and number == least):
            raise ValueError
        return number

    return bounded


def _whole(number: float) -> int:
    if number != _finite(number):
        raise ValueError
    return int(number)


def _finite(number: float) -> int:
    if not math.isfinite(number):
        raise ValueError
    return int(number)


TEXT = Kind(parse_text, "a text", "TEXT")
INTEGER = Kind(parse_integer, "a whole number such as 4096, 32k (32,000) or 32K (32,768)", "N")
SIZE = Kind(parse_size, "a size such as 2GiB, 500MB or a number of bytes", "SIZE")
NUMBER = Kind(parse_number, "a number", "X")
SECONDS = Kind(parse_seconds, "a time such as 30, 30s or 20ms", "TIME")
BOOLEAN = Kind(parse_boolean, "true or false", "BOOL")
NAMES = Kind(parse_names, "a name, or several with commas between them", "NAME")
COUNT = Kind(
    _from(parse_integer, 1, most=MOST),
    "a whole number from 1 to 10^15, such as 8, 32k (32,000) or 32K (32,768)",
    "N",
)
NATURAL = Kind(
    _from(parse_integer, 0, most=MOST), "a whole number from 0 to 10^15, such as 8 or 32k (32,000)", "N"
)
MONEY = Kind(_from(parse_number, 0, most=1e9), "an amount in US dollars from 0 to 1,000,000,000", "USD")
NUMBER_FROM_0 = Kind(_from(parse_number, 0, most=1e6), "a number from 0 to 1,000,000", "X")
SIZE_ABOVE_0 = Kind(
    _from(parse_size, 1, most=MOST), "a size such as 2GiB, 500MB or a number of bytes", "SIZE"
)
POSITIVE = Kind(_from(parse_number, 0, above=True), "a number above 0", "X")
SHARE = Kind(_from(parse_number, 0, most=1), "a number from 0 to 1", "X")
TARGET = Kind(_from(parse_number, 0.5, most=0.99999), "a share such as 0.99, from 0.5 to 0.99999", "X")
SECONDS_FROM_0 = Kind(_from(parse_seconds, 0), "a time such as 0, 30s or 20ms", "TIME")
SECONDS_ABOVE_0 = Kind(_from(parse_seconds, 0, above=True), "a time above 0 such as 30, 30s or 20ms", "TIME")
URL = Kind(parse_url, "an address such as http://10.0.0.5:8000", "URL")
PAIRS = Kind(parse_pairs, "'name: text' pairs", "PAIRS")
MAPPING = Kind(parse_mapping, "'name: value' pairs", "PAIRS")
