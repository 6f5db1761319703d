"""The filters and functions a chat template may use, each within the limits."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from jinja2 import Environment, TemplateError, pass_environment
from jinja2.filters import FILTERS, do_indent, do_round, make_attrgetter

from penstock.text.limits import (
    MAX_WIDTH,
    TemplateLimitError,
    bounded,
    check_replace,
    check_size,
    made,
    measured,
    tick,
)

# jinja2's own that cannot make much out of little.
_HARMLESS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby",
    "int", "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse",
    "safe", "select", "selectattr", "sort", "string", "title", "trim", "truncate",
    "unique", "upper", "urlencode",
)  # fmt: skip
_BEYOND_ASCII = re.compile("[^\x00-\x7f\ue000-\uf8ff\U000f0000-\U000ffffd]")


class TemplateRefusalError(TemplateError):
    """The template itself rejects the conversation, in its own words."""


def filters() -> dict[str, Callable[..., Any]]:
    """All filters by name."""
    known: dict[str, Callable[..., Any]] = {name: FILTERS[name] for name in _HARMLESS}
    known.update(indent=_indent, join=_join, replace=_replace, round=_round, sum=_sum, tojson=_tojson)
    return {name: _guarded(function) for name, function in known.items()}


def raise_exception(message: Any = "") -> None:
    raise TemplateRefusalError(str(message))


def strftime_now(form: str) -> str:
    """The local date and time, as templates write it into system prompts."""
    if len(form) > MAX_WIDTH or re.search(r"%\W*\d", form):
        raise TemplateLimitError("it formats the date with a width")
    return datetime.now().strftime(form)


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that counts, and whose result is measured; jinja2's marks on the function are kept."""

    @functools.wraps(function)
    def guard(*args: Any, **kwargs: Any) -> Any:
        tick(sum(len(value) for value in args if isinstance(value, str | list | tuple)))
        return made(function(*args, **kwargs))

    return guard


@pass_environment
def _join(
    environment: Environment, values: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    if attribute is not None:
        values = map(make_attrgetter(environment, attribute), values)
    return str(d).join(measured((str(value) for value in measured(values)), each=len(str(d))))


def _replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    limit = -1 if count is None else count
    check_replace(str(text), str(old), str(new), limit)
    return str(text).replace(str(old), str(new), limit)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models saw it in training: not escaped for HTML, and not to ASCII."""
    if isinstance(indent, int) and indent > MAX_WIDTH:
        raise TemplateLimitError(f"it indents by {indent}")
    bounded(value)
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
    # Private-use characters stay: one of them marks the user's text.
    return _BEYOND_ASCII.sub(_escaped, text) if ensure_ascii else text


def _escaped(found: re.Match[str]) -> str:
    tick()
    return json.dumps(found[0])[1:-1]


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > MAX_WIDTH:
        raise TemplateLimitError(f"it rounds to {precision} places")
    return do_round(value, precision, method)


def _indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    margin = len(width) if isinstance(width, str) else width
    check_size(len(str(text)) + margin * (1 + len(str(text).splitlines())))
    return do_indent(str(text), width, first, blank)


def _sum(values: Iterable[Any], attribute: str | None = None, start: float = 0) -> float:
    total = start
    for value in values:
        tick()
        item = value[attribute] if attribute is not None else value
        if not isinstance(item, int | float):
            raise TemplateError(f"sum takes numbers, not {type(item).__name__}")
        total += item
    return total
