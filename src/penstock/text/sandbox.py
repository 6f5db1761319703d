"""Running a template that came with a model file: no code, bounded time, bounded memory.

jinja2's immutable sandbox keeps a template away from Python. It does not keep one from filling
the memory with `"a" * 10**9` or looping for years, so here everything that makes a value bigger
is measured before or as it happens, and everything that can repeat counts against a time limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from penstock.text.filters import filters, raise_exception, strftime_now
from penstock.text.limits import (
    MAX_WIDTH,
    TemplateLimitError,
    bounded,
    budgeted,
    check_bits,
    check_replace,
    check_search,
    check_size,
    length,
    made,
    measured,
    tick,
)

MAX_SOURCE = 1 << 20  # characters of template

_METHODS: dict[type, frozenset[str]] = {
    str: frozenset({
        "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum", "isalpha",
        "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join",
        "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex",
        "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title",
        "upper",
    }),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"count", "index"}),
    tuple: frozenset({"count", "index"}),
}  # fmt: skip
# Python goes through these from the end, or character by character, without any short cut.
_SLOW_SEARCHES = frozenset({"lstrip", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "strip"})
_EQUALITY = frozenset({"eq", "ne"})
# A key in parentheses may be any text, so every number behind a % is taken for a width.
_WIDE_PRINTF = re.compile(r"%[-#0 +\d.]*\*|%[^%]*?\d{5,}")
_WIDE_FORMAT = re.compile(r"\{[^{}]*:[^{}]*(?:\d{4,}|\{)")


def compile_template(source: str) -> Callable[..., str]:
    """A function from the template's variables to its text; jinja2.TemplateError if it cannot be compiled."""
    if len(source) > MAX_SOURCE:
        raise TemplateLimitError(f"it has {len(source)} characters, more than {MAX_SOURCE}")
    template = Sandbox().from_string(source)

    def render(**variables: Any) -> str:
        with budgeted():
            return "".join(measured(template.generate(**variables)))

    return render


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment chat templates expect, with limits."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        extensions = [LoopControlExtension, _GenerationBlock]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        self.filters = filters()
        self.globals = {
            **{name: self.globals[name] for name in ("range", "dict", "namespace", "joiner", "cycler")},
            "raise_exception": raise_exception,
            "strftime_now": strftime_now,
        }

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """What compiled templates join the output of blocks and macros with."""
        return "".join(measured(parts))

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
            raise TemplateLimitError(f"it formats a field wider than {MAX_WIDTH}")
        return wrapped

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
                check_size(length(left) + length(right))
        elif operator == "*":
            for sequence, factor in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(factor, int):
                    check_size(length(sequence) * max(0, factor))
            if isinstance(left, int) and isinstance(right, int):
                check_bits(left.bit_length() + right.bit_length())
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int):
                check_bits(left.bit_length() * abs(right))
        elif isinstance(left, str) and _WIDE_PRINTF.search(left):
            raise TemplateLimitError(f"it formats a field wider than {MAX_WIDTH}")
        return made(super().call_binop(context, operator, left, right))

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        tick(len(owner) if isinstance(owner, str) else 0)
        if isinstance(owner, str):
            name = obj.__name__
            if name in _SLOW_SEARCHES and args and isinstance(args[0], str):
                check_search(owner, args[0])
            elif name == "replace" and len(args) >= 2:
                check_replace(owner, *args[:3])
            elif name == "join" and args:
                args = (measured(args[0], each=len(owner)), *args[1:])
        result = super().call(context, obj, *args, **kwargs)
        return bounded(result) if obj == self.itself else made(result)

    def getitem(self, obj: Any, argument: Any) -> Any:
        item = super().getitem(obj, argument)
        return made(item) if isinstance(argument, slice) else item

    # Called from instrumented templates, through `call`, which counts and measures.

    def itself(self, value: Any = None) -> Any:
        return value

    def joined(self, parts: list[Any]) -> str:
        return "".join(measured(str(bounded(part)) for part in parts))


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; here its body is simply rendered."""

    tags = frozenset({"generation"})  # type: ignore[assignment]  # jinja2 only looks names up in it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Instrument(NodeTransformer):
    """Make loops and macros count, and let literals and `~` be measured."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        return self._counting(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._counting(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._counting(node)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        equality = all(operand.op in _EQUALITY for operand in node.ops)
        if equality and any(isinstance(side, nodes.Const) for side in sides):
            return node  # with a literal, which is short; nearly all comparisons of real templates
        node.expr = _call("itself", node.expr)
        for operand in node.ops:
            operand.expr = _call("itself", operand.expr)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("joined", nodes.List(node.nodes, lineno=node.lineno))

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        return self._measured(node, node.items)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return self._measured(node, [pair.value for pair in node.items])

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        if node.ctx != "load":  # the target of an assignment
            return node
        return self._measured(node, node.items)

    def _counting(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("itself"), lineno=node.lineno))
        return node  # type: ignore[no-any-return]

    def _measured(self, node: nodes.Expr, items: list[nodes.Expr]) -> nodes.Node:
        if all(isinstance(item, nodes.Const) for item in items):
            return node
        self.generic_visit(node)
        return _call("itself", node)


def _call(method: str, *arguments: nodes.Expr) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(method), list(arguments), [], None, None)
