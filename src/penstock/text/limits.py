"""What one rendering of a template may cost: processor time, and the size of what it makes.

The clock can be looked at only between two operations, and an operation holds everybody up while it
lasts. So no single one may take long: values and numbers are bounded, and work on long ones counts for
more than a look at the clock in every so many operations would see.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2 import TemplateError

MAX_SECONDS = 2.0  # of processor time, so that a busy machine does not fail an honest template
MAX_SIZE = 16 << 20  # characters of any one value, and of the output
MAX_MADE = 1 << 30  # bytes of all strings that are made, which may all be alive at once
MAX_COMPARISONS = 1 << 28  # of characters, where a search in a string cannot be shortened
ELEMENT = 16  # what an element of a list counts for, in characters; it takes about that much memory
MAX_INTEGER_BITS = 1024
MAX_WIDTH = 999  # of formatted fields and indents

_TICKS_PER_LOOK = 256  # between two looks at the clock
_CHARACTERS_PER_TICK = 4096
_CONTAINERS = (str, list, tuple, dict, set, frozenset)


class TemplateLimitError(TemplateError):
    """The template wants more time or memory than any real one needs."""


class _Budget:
    """Time left for one rendering."""

    __slots__ = ("_end", "_made", "_next", "_ticks")

    def __init__(self) -> None:
        self._end = time.thread_time() + MAX_SECONDS
        self._ticks = 0
        self._next = _TICKS_PER_LOOK
        self._made = 0  # bytes

    def tick(self, characters: int) -> None:
        self._ticks += 1 + characters // _CHARACTERS_PER_TICK
        if self._ticks >= self._next:
            self._next = self._ticks + _TICKS_PER_LOOK
            if time.thread_time() > self._end:
                raise TemplateLimitError(f"it ran for more than {MAX_SECONDS:g} seconds")

    def make(self, text: str) -> None:
        self._made += text.__sizeof__()
        if self._made > MAX_MADE:
            raise TemplateLimitError(f"it makes strings of more than {MAX_MADE >> 20} MiB in all")


_budget: ContextVar[_Budget | None] = ContextVar("penstock_template_budget", default=None)


@contextmanager
def budgeted() -> Iterator[None]:
    """Within the block, `tick` raises once the time is spent."""
    token = _budget.set(_Budget())
    try:
        yield
    finally:
        _budget.reset(token)


def tick(characters: int = 0) -> None:
    """To be called wherever a template can repeat something, with what there is to be gone through."""
    budget = _budget.get()
    if budget is not None:  # none while compiling, where only constants are worked out
        budget.tick(characters)


def bounded(value: Any) -> Any:
    """The value, if it is within the limits; an iterator is measured as it is read."""
    if isinstance(value, Iterator):
        return measured(value)
    if isinstance(value, int):
        check_bits(value.bit_length())
    else:
        tick(_size(value))
    return value


def made(value: Any) -> Any:
    """The same of a value that has just been made, and takes memory that nothing else has."""
    value = bounded(value)
    budget = _budget.get()
    if budget is not None and isinstance(value, str):
        budget.make(value)
    return value


def measured(parts: Iterable[Any], each: int = 0) -> Iterator[Any]:
    """The parts as they come, as long as they and `each` more for every one stay within MAX_SIZE."""
    size = 0
    for part in parts:
        tick()
        size = check_size(size + _size(part) + each)
        yield part


def check_size(size: int) -> int:
    if size > MAX_SIZE:
        raise TemplateLimitError(f"it makes a value of more than {MAX_SIZE} characters")
    return size


def check_bits(bits: int) -> None:
    if bits > MAX_INTEGER_BITS:
        raise TemplateLimitError(f"it makes a number of more than {MAX_INTEGER_BITS} bits")


def check_search(text: str, wanted: str) -> None:
    """Of searches that may compare every character of one string with every one of the other."""
    comparisons = len(text) * len(wanted)
    if comparisons > MAX_COMPARISONS:
        raise TemplateLimitError(f"it searches {len(text)} characters for {len(wanted)} others")
    tick(comparisons)


def check_replace(text: str, old: str, new: str, limit: int = -1) -> None:
    found = text.count(old) if limit < 0 else min(limit, text.count(old))
    check_size(len(text) + found * max(0, len(new) - len(old)))


def length(value: Any) -> int:
    """Size of a string or container, without what its elements contain."""
    return len(value) if isinstance(value, str) else ELEMENT * len(value)


def _size(value: Any) -> int:
    """Size of the value and all that it contains, counted as often as it occurs.

    Counting repetitions matters: forty times `[x, x]` is small in memory and endless when written out.
    """
    if isinstance(value, str):
        return check_size(len(value))
    if not isinstance(value, _CONTAINERS):
        return ELEMENT
    size, pending = 0, [value]
    while pending:
        tick()
        item = pending.pop()
        size = check_size(size + length(item))
        if isinstance(item, str):
            continue
        parts = (*item.keys(), *item.values()) if isinstance(item, dict) else item
        pending.extend(part for part in parts if isinstance(part, _CONTAINERS))
    return size
