"""Finding any of several stop strings in a text that arrives in pieces (Aho-Corasick)."""

from __future__ import annotations

from collections import deque
from functools import lru_cache


class StopStrings:
    """An automaton over all stop strings at once: constant time a character, however many there are.

    A state stands for the longest end of the text so far that begins some stop string, and `depth`
    of that state is its length: exactly the characters that must be held back.
    """

    __slots__ = ("_fail", "_goto", "_match", "depth")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._goto: list[dict[str, int]] = [{}]
        self._fail = [0]
        self._match: list[str | None] = [None]  # the longest stop string that ends in this state
        self.depth = [0]
        for stop in stops:
            self._add(stop)
        self._link()

    def advance(self, state: int, text: str) -> tuple[int, int, str | None]:
        """Read `text` until a stop string is complete: (state, characters read, the stop string or None)."""
        goto, fail, match = self._goto, self._fail, self._match
        for position, character in enumerate(text, 1):
            while (following := goto[state].get(character)) is None and state:
                state = fail[state]
            state = following or 0
            found = match[state]
            if found is not None:
                return state, position, found
        return state, len(text), None

    def _add(self, stop: str) -> None:
        state = 0
        for character in stop:
            following = self._goto[state].get(character)
            if following is None:
                following = len(self._goto)
                self._goto[state][character] = following
                self._goto.append({})
                self._fail.append(0)
                self._match.append(None)
                self.depth.append(self.depth[state] + 1)
            state = following
        self._match[state] = stop

    def _link(self) -> None:
        queue = deque(self._goto[0].values())
        while queue:
            state = queue.popleft()
            for character, following in self._goto[state].items():
                queue.append(following)
                back = self._fail[state]
                while back and character not in self._goto[back]:
                    back = self._fail[back]
                self._fail[following] = self._goto[back].get(character, 0)
                # A shorter stop string that ends here counts when no longer one does.
                if self._match[following] is None:
                    self._match[following] = self._match[self._fail[following]]


@lru_cache(maxsize=32)  # an automaton of the largest stop strings allowed takes about a megabyte
def compiled(stops: tuple[str, ...]) -> StopStrings:
    """The automaton for these stop strings; choices and requests that share them share it."""
    return StopStrings(stops)
