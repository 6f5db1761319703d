"""Code: is it the same program, but for names, comments and layout?"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from itertools import islice
from typing import Final

from penstock.aio.judges.verdict import Embed, Pair, Verdict

NAME: Final = "same code"
_FENCE: Final = re.compile(r"```([\w+#.-]*)[^\n`]{0,80}\n(.*?)```", re.DOTALL)
_PYTHON: Final = frozenset({"python", "py", "python3", ""})
_HASHED: Final = _PYTHON | {"bash", "sh", "shell", "ruby", "r", "perl", "yaml", "toml"}
_HASH: Final = re.compile(r"#[^\n]*")
_SLASHES: Final = re.compile(r"/\*.*?\*/|(?://|--\s)[^\n]*", re.DOTALL)
_TOKEN: Final = re.compile(r"\w+|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[^\w\s]")
_MOST: Final = 4000  # tokens that are compared
# Two programs for one task share this much anyway, and programs that differ may both be right.
_CHANCE, _ALIKE = 0.35, 0.9


def blocks(answer: str) -> list[tuple[str, str]]:
    """Language and text of the fenced blocks of an answer."""
    return [(language.lower(), text) for language, text in _FENCE.findall(answer)]


def judge_code(pair: Pair, embed: Embed | None) -> Verdict:
    low, expert = blocks(pair.low), blocks(pair.expert)
    if not low and not expert:
        return Verdict(0.5, "unclear", NAME, "code")
    if not low or not expert:
        return Verdict(0.2 if expert else 0.7, "unclear", NAME, "code")
    first, second = (max(found, key=lambda block: len(block[1])) for found in (low, expert))
    if first[0] in _PYTHON and second[0] in _PYTHON:
        trees = _tree(first[1]), _tree(second[1])
        if trees[0] is not None and trees[0] == trees[1]:
            return Verdict(0.98, "same", NAME, "code")
        if second[0] and (trees[0] is None) != (trees[1] is None):
            broken = trees[0] is None
            return Verdict(0.05 if broken else 0.9, "expert_better" if broken else "low_better", NAME, "code")
    similar = _overlap(_tokens(*first), _tokens(*second))
    score = min(0.95, max(0.1, 0.1 + 0.85 * (similar - _CHANCE) / (_ALIKE - _CHANCE)))
    return Verdict(round(score, 4), "same" if similar >= _ALIKE else "unclear", NAME, "code")


class _Plain(ast.NodeTransformer):
    """Names of variables in order of appearance; no docstrings, no annotations."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def _name(self, name: str) -> str:
        return self._names.setdefault(name, f"v{len(self._names)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self._name(node.id), node.ctx), node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.copy_location(ast.arg(self._name(node.arg)), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.visit(ast.copy_location(ast.Assign([node.target], node.value), node))  # type: ignore[no-any-return]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.name = self._name(node.name)
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


def _tree(source: str) -> str | None:
    """A program's tree with its names evened out; None where it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = ast.parse(source)
        return ast.dump(_Plain().visit(parsed))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _overlap(a: list[str], b: list[str]) -> float:
    """The share of runs of three tokens that two programs have in common."""
    first, second = (Counter(zip(tokens, tokens[1:], tokens[2:], strict=False)) for tokens in (a, b))
    runs = first.total() + second.total()
    return 2 * (first & second).total() / runs if runs else float(a == b)


def _tokens(language: str, source: str) -> list[str]:
    comment = _HASH if language in _HASHED else _SLASHES
    return [match[0] for match in islice(_TOKEN.finditer(comment.sub(" ", source)), _MOST)]
