"""Values of any JSON kind inside a request: what they may hold, though nobody knows what they mean."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidRequestError

# Templates and what prepares their variables walk nested values recursively.
MAX_DEPTH = 16
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
MAX_VALUES = 1024
MAX_CHARACTERS = 65536


def check_plain(value: Any, where: str) -> None:
    """Refuse nesting that would break recursive readers, and integers that are none elsewhere."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        for item in level:
            if isinstance(item, int) and not MIN_INTEGER <= item <= MAX_INTEGER:
                raise InvalidRequestError(
                    f"{where} has an integer of more than 64 bits; send it as a string.", param=where
                )
        level = _children(level)
        if not level:
            return
    raise InvalidRequestError(f"{where} is nested deeper than {MAX_DEPTH} levels.", param=where)


def check_small(value: Any, where: str) -> None:
    """Refuse what would cost more to copy into a template than any template has use for."""
    values = characters = 0
    level = [value]
    while level:
        values += len(level)
        characters += sum(len(item) for item in level if isinstance(item, str))
        characters += sum(len(key) for item in level if isinstance(item, dict) for key in item)
        level = _children(level)
    for count, limit, what in ((values, MAX_VALUES, "values"), (characters, MAX_CHARACTERS, "characters")):
        if count > limit:
            raise InvalidRequestError(f"{where} has {count} {what}; at most {limit} are taken.", param=where)


def _children(level: list[Any]) -> list[Any]:
    children: list[Any] = []
    for item in level:
        if isinstance(item, dict):
            children.extend(item.values())
        elif isinstance(item, list):
            children.extend(item)
    return children
