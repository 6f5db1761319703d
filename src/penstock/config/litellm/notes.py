"""What could not be converted, and reading values of which nobody knows whether they are right."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

_VARIABLE = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)\s*")


class Notes:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.variables: list[str] = []  # that the new file needs

    def add(self, place: str, why: str) -> None:
        line = " ".join(f"{place}: {why}".split())
        if line not in self.lines:
            self.lines.append(line)

    def rest(self, place: str, section: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
        """Note every key that is left, with the reason if it is a well-known one."""
        for key, value in section.items():
            # Only numbers are quoted: a text could be a secret.
            shown = f" (it was {value})" if isinstance(value, int | float) else ""
            self.add(f"{place}.{key}", reasons.get(key, "has no equivalent") + shown)

    def secret(self, place: str, value: Any) -> str | None:
        """A key: LiteLLM's way to name a variable becomes ours; one in plain text stays as it is."""
        if not isinstance(value, str) or not value.strip() or not value.isascii() or not value.isprintable():
            self.add(place, "is not a key that a header could carry")
            return None
        if (name := variable_in(value)) is not None:
            return self.variable(name)
        self.add(place, "stands in the file in plain text, and still does; a variable is a better place")
        return escaped(value)

    def text(self, value: str) -> str:
        """Any other text, which may name a variable too."""
        name = variable_in(value)
        return escaped(value) if name is None else self.variable(name)

    def variable(self, name: str) -> str:
        if name not in self.variables:
            self.variables.append(name)
        return f"${{{name}}}"


def variable_in(value: object) -> str | None:
    """The variable that a text names in LiteLLM's way."""
    match = _VARIABLE.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else match[1]


def escaped(text: str) -> str:
    return text.replace("${", "$${")


def section_of(content: Mapping[str, Any], name: str, notes: Notes) -> dict[str, Any]:
    value = content.get(name)
    if isinstance(value, dict):
        return dict(value)
    if value is not None:
        notes.add(name, "is not a section of 'key: value' lines")
    return {}


def number(place: str, value: Any, notes: Notes, *, least: float = 0.0, most: float = 1e9) -> float | None:
    """A number in these bounds; anything else is noted."""
    try:
        result = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        result = math.nan
    if least <= result <= most:
        return int(result) if result == int(result) else result
    notes.add(place, "is not a number that makes sense")
    return None
