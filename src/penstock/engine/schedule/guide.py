"""Guided choice: the output must be one of several token sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class _Node:
    """What may follow a beginning that some choices share, and whether one of them is over here."""

    __slots__ = ("next", "whole")

    def __init__(self) -> None:
        self.next: dict[int, _Node] = {}
        self.whole = False


class Guide:
    """The choices as a tree of tokens. Where a choice is the beginning of another, the model decides:
    it ends its answer, or goes on."""

    def __init__(self, choices: Iterable[Sequence[int]], ends: Iterable[int]) -> None:
        self._root = _Node()
        self._ends = tuple(ends)
        for choice in choices:
            node = self._root
            for token in choice:
                node = node.next.setdefault(token, _Node())
            node.whole = True

    def allowed(self, output: Sequence[int]) -> list[int]:
        """The tokens that may come after this output."""
        node = self._node(output)
        if node is None:
            return []
        return [*node.next, *(self._ends if node.whole else ())]

    def over(self, output: Sequence[int]) -> bool:
        """Whether the output is a choice that no other one continues."""
        node = self._node(output)
        return node is not None and node.whole and not node.next

    def _node(self, output: Sequence[int]) -> _Node | None:
        node: _Node | None = self._root
        for token in output:
            node = node.next.get(token) if node is not None else None
        return node
