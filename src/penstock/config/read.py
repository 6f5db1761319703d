"""From the file's tree to the sections: each option parsed by its kind, every mistake noted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.config.catalogue import Option, Section, options_of
from penstock.config.problems import Problems, nearest
from penstock.config.tree import UNSET, Node
from penstock.config.values import UnfitError

T = TypeVar("T")
FAILED = object()  # the value was wrong, and is noted as such

# Reads a section that has more to it than its options: short forms, keys that another catalogue explains.
SpecialReader = Callable[["Reader", Node, str], Any]


class Reader:
    def __init__(self, problems: Problems, special: Mapping[type, SpecialReader] | None = None) -> None:
        self.problems = problems
        self._special = special or {}

    def section(self, of: type[T], node: Node, place: str, **given: Any) -> T:
        """A section with whatever of it was right; the rest has its default, and is among the problems."""
        return of(**self.options(options_of(of), self.entries(node, place), place), **given)

    def entries(self, node: Node, place: str) -> Mapping[str, Node]:
        """The keys of a section; an empty one has none."""
        if isinstance(node.value, dict):
            return node.value
        if node.value is not None and node.value is not UNSET:
            self.problems.add(place, f"must hold 'key: value' lines, got {node.shown}")
        return {}

    def options(
        self,
        catalogue: Mapping[str, Option],
        entries: Mapping[str, Node],
        place: str,
        *,
        known: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """The values of these options by name. `known` are further keys to offer for a mistyped one."""
        spellings = {name: each for each in catalogue.values() for name in (each.name, *each.aliases)}
        values: dict[str, Any] = {}
        used: dict[str, str] = {}
        for key, child in entries.items():
            where = f"{place}.{key}" if place else key
            found = spellings.get(key.replace("-", "_"))
            if found is None:
                guess = nearest(key, (*spellings, *known))
                self.problems.add(where, f"is not a known key; the nearest known one is {guess!r}")
            elif found.name in used:
                self.problems.add(where, f"is the same option as {used[found.name]!r}; keep one of them")
            else:
                used[found.name] = key
                value = self.option(found, child, where)
                if value is not FAILED:
                    values[found.name] = value
        return values

    def option(self, option: Option, node: Node, place: str) -> Any:
        """The value, or FAILED."""
        if isinstance(option.kind, Section):
            return self._nested(option, option.kind, node, place)
        if _holds_unset(node):
            return FAILED
        if option.optional and (node.value is None or node.value == "auto"):
            return None
        try:
            return option.kind.parse(node.plain())
        except (ValueError, OverflowError) as error:
            reason = error if isinstance(error, UnfitError) else UnfitError(f"must be {option.kind.expects}")
            predicate = str(reason)
            if option.secret:  # a key mistyped as a number is still somebody's key
                predicate += ", and is not"
            elif reason.quote:
                predicate += f", got {node.shown}"
            self.problems.add(place, predicate)
        return FAILED

    def _nested(self, option: Option, section: Section, node: Node, place: str) -> Any:
        read = self._special.get(section.of)
        if section.form == "one":
            if node.value is None or node.value is UNSET:
                return option.default
            return self.section(section.of, node, place) if read is None else read(self, node, place)
        if section.form == "named":
            return tuple(
                self.section(section.of, child, f"{place}.{name}", name=name)
                for name, child in self.entries(node, place).items()
            )
        if node.value is UNSET:
            return FAILED
        if not isinstance(node.value, list):
            self.problems.add(place, f"must be a list, each item with a '-' before it, got {node.shown}")
            return FAILED
        items = [(child, f"{place}[{index}]") for index, child in enumerate(node.value)]
        if read is not None:
            return tuple(read(self, child, where) for child, where in items)
        return tuple(self.section(section.of, child, where) for child, where in items)


def _holds_unset(node: Node) -> bool:
    """Whether something in this value is known to be wrong already."""
    if isinstance(node.value, dict):
        return any(map(_holds_unset, node.value.values()))
    if isinstance(node.value, list):
        return any(map(_holds_unset, node.value))
    return node.value is UNSET
