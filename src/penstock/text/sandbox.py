"""Running a template that came with a model file: no code, bounded time, bounded memory.

jinja2's immutable sandbox keeps a template away from Python. It does not keep one from filling
the memory with `"a" * 10**9` or looping for years, so here everything that makes a value bigger
is measured before or as it happens, and everything that can repeat counts against a time limit.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, nodes, pass_environment
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import do_indent, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_SECONDS = 2.0  # of processor time, so that a busy machine does not fail an honest template
MAX_SIZE = 16 << 20  # characters and elements of any one value, and of the output
MAX_SOURCE = 1 << 20  # characters of template
MAX_INTEGER_BITS = 1024
MAX_WIDTH = 999  # of formatted fields and indents

_TICKS_PER_LOOK = 256  # between two looks at the clock
_CONTAINERS = (str, list, tuple, dict, set, frozenset)
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        "capitalize count endswith find format index isalnum isalpha isascii isdecimal isdigit islower isnumeric "
        "isspace istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex "
        "rpartition rsplit rstrip split splitlines startswith strip swapcase title upper casefold".split()
    ),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"count", "index"}),
    tuple: frozenset({"count", "index"}),
}
_FILTERS = (
    "abs capitalize count d default dictsort e escape first float groupby int items last length list lower map "
    "max min reject rejectattr reverse round safe select selectattr sort string striptags title trim truncate "
    "unique upper urlencode"
).split()
_WIDE_PRINTF = re.compile(r"%[^%a-zA-Z]*(?:\d{4,}|\*)")
_WIDE_FORMAT = re.compile(r"\{[^{}]*:[^{}]*(?:\d{4,}|\{)")


class TemplateLimit(TemplateError):
    """The template wants more time or memory than any real one needs."""


class TemplateRefusal(TemplateError):
    """The template itself rejects the conversation, in its own words."""


class Budget:
    """Time left for one rendering."""

    __slots__ = ("_end", "_ticks")

    def __init__(self) -> None:
        self._end = time.thread_time() + MAX_SECONDS
        self._ticks = 0

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % _TICKS_PER_LOOK == 0 and time.thread_time() > self._end:
            raise TemplateLimit(f"it ran for more than {MAX_SECONDS:g} seconds")


_budget: ContextVar[Budget | None] = ContextVar("penstock_template_budget", default=None)


def compile_template(source: str) -> Callable[..., str]:
    """A function from the template's variables to its text; raises jinja2.TemplateError if it cannot be compiled."""
    if len(source) > MAX_SOURCE:
        raise TemplateLimit(f"it has {len(source)} characters, more than {MAX_SOURCE}")
    template = Sandbox().from_string(source)

    def render(**variables: Any) -> str:
        token = _budget.set(Budget())
        try:
            return "".join(_measured(template.generate(**variables)))
        finally:
            _budget.reset(token)

    return render


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment chat templates expect, with limits."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        return "".join(_measured(parts))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, _GenerationBlock]
        )
        known: dict[str, Callable[..., Any]] = {name: self.filters[name] for name in _FILTERS}
        known.update(indent=_indent, join=_join, replace=_replace, sum=_sum, tojson=_tojson)
        self.filters = {name: _guarded(function) for name, function in known.items()}
        self.globals = {
            **{name: self.globals[name] for name in ("range", "dict", "namespace", "joiner", "cycler")},
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Instrument().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        for kind, allowed in _METHODS.items():
            if isinstance(obj, kind):
                return attr in allowed
        if isinstance(obj, int | float | complex | bytes | range):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None and _WIDE_FORMAT.search(value.__self__):
            raise TemplateLimit(f"it formats a field wider than {MAX_WIDTH}")
        return wrapped

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
                _checked(len(left) + len(right))
        elif operator == "*":
            for sequence, factor in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(factor, int):
                    _checked(len(sequence) * max(0, factor))
            if isinstance(left, int) and isinstance(right, int):
                _check_bits(left.bit_length() + right.bit_length())
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int):
                _check_bits(left.bit_length() * abs(right))
        elif isinstance(left, str) and _WIDE_PRINTF.search(left):
            raise TemplateLimit(f"it formats a field wider than {MAX_WIDTH}")
        return bounded(super().call_binop(context, operator, left, right))

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        tick()
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            name = obj.__name__
            if name == "replace" and len(args) >= 2:
                _check_replace(owner, *args[:3])
            elif name == "join" and args:
                args = (_measured(args[0], each=len(owner)), *args[1:])
        return bounded(super().call(context, obj, *args, **kwargs))

    # Called from instrumented templates.

    def bounded_value(self, value: Any) -> Any:
        return value  # `call` measures what every call returns

    def joined(self, parts: list[Any]) -> str:
        return "".join(_measured(str(bounded(part)) for part in parts))


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; here its body is simply rendered."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Instrument(NodeTransformer):
    """Make loops and macros count, and let literals and `~` be measured."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self._counting(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._counting(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._counting(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("joined", nodes.List(node.nodes, lineno=node.lineno))

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._measured(node, node.items)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._measured(node, [pair.value for pair in node.items])

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        if node.ctx != "load":  # the target of an assignment
            return node
        return self._measured(node, node.items)

    def _counting(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("bounded_value", nodes.Const(None)), lineno=node.lineno))
        return node  # type: ignore[no-any-return]

    def _measured(self, node: nodes.Expr, items: list[nodes.Expr]) -> nodes.Node:
        if all(isinstance(item, nodes.Const) for item in items):
            return node
        self.generic_visit(node)
        return _call("bounded_value", node)


def tick() -> None:
    budget = _budget.get()
    if budget is not None:  # none while compiling, where only constants are worked out
        budget.tick()


def bounded(value: Any) -> Any:
    """The value, if it is within MAX_SIZE; an iterator is measured as it is read."""
    if isinstance(value, Iterator):
        return _measured(value)
    _size(value)
    return value


def _size(value: Any) -> int:
    """Characters and elements of the value and all that it contains, counted as often as they occur.

    Counting repetitions matters: forty times `[x, x]` is small in memory and endless when written out.
    """
    if isinstance(value, str):
        return _checked(len(value))
    if not isinstance(value, _CONTAINERS):
        return 1
    size, pending = 0, [value]
    while pending:
        tick()
        item = pending.pop()
        size = _checked(size + len(item))
        if isinstance(item, str):
            continue
        parts = (*item.keys(), *item.values()) if isinstance(item, dict) else item
        pending.extend(part for part in parts if isinstance(part, _CONTAINERS))
        _checked(len(pending))
    return size


def _measured(parts: Iterable[Any], each: int = 0) -> Iterator[Any]:
    """The parts as they come, as long as they and `each` more for every one stay within MAX_SIZE."""
    size = 0
    for part in parts:
        tick()
        size = _checked(size + _size(part) + each)
        yield part


def _call(method: str, *arguments: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method), list(arguments), [], None, None)


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that counts, and whose result is measured; jinja2's marks on the function are kept."""

    @functools.wraps(function)
    def guard(*args: Any, **kwargs: Any) -> Any:
        tick()
        return bounded(function(*args, **kwargs))

    return guard


@pass_environment
def _join(
    environment: Sandbox, values: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    if attribute is not None:
        values = map(make_attrgetter(environment, attribute), values)
    return str(d).join(_measured((str(value) for value in _measured(values)), each=len(str(d))))


def _replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new, limit = str(text), str(old), str(new), -1 if count is None else count
    _check_replace(text, old, new, limit)
    return text.replace(old, new, limit)


def _check_replace(text: str, old: str, new: str, limit: int = -1) -> None:
    found = text.count(old) if limit < 0 else min(limit, text.count(old))
    _checked(len(text) + found * max(0, len(new) - len(old)))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,  # templates pass it; the text means the same either way
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if isinstance(indent, int) and indent > MAX_WIDTH:
        raise TemplateLimit(f"it indents by {indent}")
    bounded(value)
    return json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)


def _indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    margin = len(width) if isinstance(width, str) else width
    _checked(len(str(text)) + margin * (1 + len(str(text).splitlines())))
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


def _raise_exception(message: Any = "") -> None:
    raise TemplateRefusal(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > MAX_WIDTH or re.search(r"%\d", form):
        raise TemplateLimit("it formats the date with a width")
    return datetime.now().strftime(form)


def _checked(size: int) -> int:
    if size > MAX_SIZE:
        raise TemplateLimit(f"it makes a value of more than {MAX_SIZE} characters or elements")
    return size


def _check_bits(bits: int) -> None:
    if bits > MAX_INTEGER_BITS:
        raise TemplateLimit(f"it makes a number of more than {MAX_INTEGER_BITS} bits")
