"""What is wrong with a configuration: all of it, each mistake a sentence with its place."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    sentence: str
    place: str | None = None  # such as models.chat.backends[1].url
    line: int | None = None  # of the file, from 1


class Mistakes(ConfigError):  # noqa: N818 - several errors at once
    """A configuration that cannot be used; `str()` is the first of its problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0].sentence
        more = len(self.problems) - 1
        if more:
            first = f"{first.rstrip('.')} ({more} more: see `penstock config check`)."
        super().__init__(first)


class Problems:
    """Gathers what is wrong; a place of the file is named with its line."""

    def __init__(self, file: str | None, lines: Mapping[str, int]) -> None:
        self.found: list[Problem] = []
        self._file = file
        self._lines = lines

    def add(self, place: str, predicate: str) -> None:
        """`predicate` completes "models.chat.price in penstock.yaml, line 3, ..."."""
        line = self.line_of(place)
        where = f" in {self._file}" if self._file else ""
        at = f", line {line}," if line else ""
        self.found.append(Problem(sentence=f"{place}{where}{at} {predicate}.", place=place, line=line))

    def say(self, sentence: str) -> None:
        """A mistake that was not made in the file."""
        self.found.append(Problem(sentence=sentence))

    def about(self, place: str) -> bool:
        """Whether something is wrong there already."""
        return any(problem.place == place for problem in self.found)

    def line_of(self, place: str) -> int | None:
        """The line of a place, or of what holds it where the place itself was not written down."""
        while place and place not in self._lines:
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        return self._lines.get(place)


def nearest(word: str, known: Iterable[str]) -> str:
    return difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.0)[0]
