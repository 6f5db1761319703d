"""What a file holds, with the place and line of everything: plain data, whatever the format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Unset:
    """The value of a place that is known to be wrong already."""


UNSET = Unset()


@dataclass(frozen=True, slots=True)
class Node:
    value: Any  # a scalar, dict[str, Node], list[Node] or UNSET
    written: str = ""  # a scalar as it stands in the file, so that no variable's value is ever quoted

    @property
    def shown(self) -> str:
        """What a complaint quotes."""
        if isinstance(self.value, dict | list):
            return "a section" if isinstance(self.value, dict) else "a list"
        if self.value is None:
            return "nothing"
        text = self.written if len(self.written) <= 80 else f"{self.written[:77]}..."
        return repr(text) if isinstance(self.value, str) else text

    def plain(self) -> Any:
        """As YAML alone would have it."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value


@dataclass(frozen=True, slots=True)
class Document:
    root: Node = Node(None)
    lines: Mapping[str, int] = field(default_factory=dict)  # of each place, from 1
    complaints: tuple[tuple[str, str], ...] = ()  # place and predicate: keys given twice, variables not set
