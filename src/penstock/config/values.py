"""From what a person writes to a typed value: `32k`, `2GiB`, `20ms`, `a,b`, `on`.

Each parser takes text (flags, environment) or what YAML made of it, and raises ValueError
when the value is not of its kind. `expects` completes the sentence "port must be ...".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_INTEGER = re.compile(r"([+-]?\d[\d_]*)")
_SCALED = re.compile(r"(\d+(?:\.\d+)?) ?([kKmMgGtT])")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kKmMgGtT]?)(i?[bB])?")
_DURATION = re.compile(r"(.*?) ?(ms|s|m)?")
_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}
_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: how it is parsed, described in an error, and shown in help."""

    parse: Callable[[Any], Any]
    expects: str
    metavar: str


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
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[prefix.lower()])


def parse_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    number = float(value)
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


def _whole(number: float) -> int:
    if number != int(number):
        raise ValueError
    return int(number)


TEXT = Kind(parse_text, "a text", "TEXT")
INTEGER = Kind(parse_integer, "a whole number such as 4096, 32k (32,000) or 32K (32,768)", "N")
SIZE = Kind(parse_size, "a size such as 2GiB, 500MB or a number of bytes", "SIZE")
NUMBER = Kind(parse_number, "a number", "X")
SECONDS = Kind(parse_seconds, "a time such as 30, 30s or 20ms", "TIME")
BOOLEAN = Kind(parse_boolean, "true or false", "BOOL")
NAMES = Kind(parse_names, "a name, or several with commas between them", "NAME")
