"""What could not be converted, and reading values of which nobody knows whether they are right."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

ENVIRONMENT = "os.environ/"


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
        if not isinstance(value, str) or not value.strip():
            self.add(place, "is not a text")
            return None
        if value.startswith(ENVIRONMENT):
            return self.variable(value.removeprefix(ENVIRONMENT).strip())
        self.add(place, "stands in the file in plain text, and still does; a variable is a better place")
        return escaped(value)

    def text(self, value: str) -> str:
        """Any other text, which may name a variable too."""
        if value.startswith(ENVIRONMENT):
            return self.variable(value.removeprefix(ENVIRONMENT).strip())
        return escaped(value)

    def variable(self, name: str) -> str:
        if name not in self.variables:
            self.variables.append(name)
        return f"${{{name}}}"


def escaped(text: str) -> str:
    return text.replace("${", "$${")


def section_of(content: Mapping[str, Any], name: str, notes: Notes) -> dict[str, Any]:
    value = content.get(name)
    if isinstance(value, dict):
        return dict(value)
    if value is not None:
        notes.add(name, "is not a section of 'key: value' lines")
    return {}


def number(place: str, value: Any, notes: Notes, *, least: float = 0.0) -> float | None:
    """A finite number of at least `least`; anything else is noted."""
    try:
        result = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        result = math.nan
    if math.isfinite(result) and result >= least:
        return int(result) if result == int(result) else result
    notes.add(place, "is not a number that makes sense")
    return None
