"""What a PromQL expression asks for: enough of a reader to check names and labels; promtool parses it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORDS = {"and", "or", "unless", "offset", "bool", "inf", "nan"}
_GROUPING = re.compile(r"\b(by|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_MATCHERS = rf"\{{(?:\s*{_MATCHER.pattern.replace('(', '(?:')}\s*,?)*\s*\}}".replace("(?:?:", "(?:")
_SELECTOR = re.compile(rf"(?<![\w:$])([a-zA-Z_:][\w:]*)\b({_MATCHERS})?(?!\s*\()")


@dataclass(frozen=True)
class Selector:
    metric: str
    matchers: tuple[tuple[str, str, str], ...]  # label, operator, value


def selectors(expr: str) -> Iterator[Selector]:
    text = re.sub(r"\[[^\]]*\]|offset \w+", "", _GROUPING.sub(" ", expr))
    for match in _SELECTOR.finditer(text):
        if match.group(1).lower() not in _WORDS:
            yield Selector(match.group(1), tuple(_MATCHER.findall(match.group(2) or "")))


def aggregations(expr: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The labels that each `by` keeps, and what is aggregated."""
    for match in re.finditer(r"\bby\s*\(([^)]*)\)\s*\(", expr):
        labels = tuple(label.strip() for label in match.group(1).split(",") if label.strip())
        yield labels, expr[match.end() : _closing(expr, match.end() - 1)]


def joined_labels(expr: str) -> set[str]:
    """Labels that a join goes by."""
    found = (labels for word, labels in _GROUPING.findall(expr) if word != "by")
    return {label.strip() for labels in found for label in labels.split(",") if label.strip()}


def _closing(expr: str, opening: int) -> int:
    depth = 0
    for index in range(opening, len(expr)):
        depth += {"(": 1, ")": -1}.get(expr[index], 0)
        if depth == 0:
            return index
    raise ValueError(f"A parenthesis is not closed: {expr}")
