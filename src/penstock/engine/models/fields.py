"""Reading a model's description with every complaint kept, so that all of them can be told at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from penstock.errors import ModelError

Description = TypeVar("Description")
REQUIRED: Any = object()
LARGEST, LARGEST_NUMBER = 1 << 48, 1e30  # beyond anything that could be meant
_PLACEHOLDER = 1  # stands in for what could not be read; never reaches a model


class Fields:
    """A description under config.json's names, whichever file it is from.

    Reading never raises: what is missing or makes no sense becomes one of the `problems`, and something
    harmless is returned. A field that is null counts as given only where None is a possible value.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        format: Literal["safetensors", "gguf"] = "safetensors",
        names: Mapping[str, str] | None = None,
    ) -> None:
        """`names`: what the file itself calls its fields, where that is not config.json's name."""
        self.format = format
        self.problems: list[str] = []
        self._values = values
        self._names = names or {}

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def __len__(self) -> int:
        return len(self._values)

    def complain(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def integer(self, name: str, default: Any = REQUIRED, *, least: int = 1, most: int = LARGEST) -> int:
        value = self._get(name, default)
        if type(value) is not int or not least <= value <= most:
            return self._refuse(name, value, f"an integer from {least} to {most}")
        return value

    def optional_integer(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        if self._values.get(name, default) is None:
            return None
        return self.integer(name, default, least=least)

    def number(self, name: str, default: Any = REQUIRED, *, above: float = 0.0) -> float:
        value = self._get(name, default)
        if not _is_number(value) or not above < value <= LARGEST_NUMBER:
            wanted = "a positive number" if above == 0 else f"a number above {above:g}"
            return self._refuse(name, value, f"{wanted} up to {LARGEST_NUMBER:g}")
        return float(value)

    def optional_number(self, name: str, default: float | None = None) -> float | None:
        if self._values.get(name, default) is None:
            return None
        return self.number(name, default)

    def flag(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if type(value) is not bool:
            self._refuse(name, value, "true or false")
            return default
        return value

    def text(self, name: str, default: str) -> str:
        value = self._get(name, default)
        if not isinstance(value, str):
            self._refuse(name, value, "a string")
            return default
        return value

    def items(self, name: str, kind: type, count: int) -> list[Any] | None:
        """A list of so many values of one type; None where the file has none, or no usable one."""
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            self._refuse(name, value, f"a list of {kind.__name__}")
            return None
        if len(value) != count:
            self.complain(f"{self._name(name)!r} has {len(value)} entries for {count} layers")
            return None
        return value

    def integers(self, name: str) -> list[int]:
        """A list of any length; empty where the file has none, or no usable one."""
        value = self._get(name, [])
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            self._refuse(name, value, "a list of integers")
            return []
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        value = self._get(name, REQUIRED)
        if not isinstance(value, list) or not all(_is_number(n) and 0 < n <= LARGEST_NUMBER for n in value):
            self._refuse(name, value, "a list of positive numbers")
            return ()
        return tuple(map(float, value))

    def section(self, name: str, **defaults: Any) -> Fields:
        """A nested object, empty if it is not there; its complaints are these fields' too."""
        value = self._values.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            self._refuse(name, value, "an object")
            value = {}
        given = {key: item for key, item in value.items() if item is not None}
        section = Fields({**defaults, **given}, self.format, self._names)
        section.problems = self.problems
        return section

    def _name(self, name: str) -> str:
        return self._names.get(name, name)

    def _get(self, name: str, default: Any) -> Any:
        value = self._values.get(name)
        return default if value is None else value

    def _refuse(self, name: str, value: Any, wanted: str) -> int:
        if value is REQUIRED:
            self.complain(f"{self._name(name)!r} is missing")
        else:
            shown = repr(value)
            self.complain(
                f"{self._name(name)!r} is {shown if len(shown) < 80 else shown[:77] + '...'}, not {wanted}"
            )
        return _PLACEHOLDER


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def read_description(
    fields: Fields, read: Callable[[Fields], Description], name: str, path: Path
) -> Description:
    """Everything that is wrong with a single field, or else what contradicts what."""
    try:
        description = read(fields)
    except ModelError as error:
        if not fields.problems:
            raise ModelError(f"{path} cannot be run as a {name}. {error}") from None
    if fields.problems:
        raise ModelError(f"{path} cannot be run as a {name}: {'; '.join(fields.problems)}.")
    return description
