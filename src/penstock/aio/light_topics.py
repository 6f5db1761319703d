"""Which subject a text is about: naive Bayes over its words, tempered until its probabilities are honest.

A subject tells which models are good at it better than its single words do. Only probabilities are passed on,
so that a text of no known subject spreads over several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.aio.light_text import Rows

Floats = NDArray[np.float64]
STRENGTH: Final = 10.0  # of a probability beside features of variance 1
_LEAST: Final = 5  # texts that a word must stand in
_SMOOTH: Final = 0.3
_TEMPERS: Final = (0.5, 0.35, 0.25, 0.18, 0.13, 0.09)


@dataclass(frozen=True, slots=True)
class Topics:
    """`table` says how much more often a word stands in texts of a subject than elsewhere, as a logarithm."""

    names: tuple[str, ...]
    known: NDArray[np.uint32]
    table: Floats  # [words, subjects]
    prior: Floats  # [subjects]
    temper: float
    usual: Floats  # [subjects]: mean probabilities in training
    at: dict[int, int]

    def of(self, words: Sequence[int]) -> Floats:
        """Inputs for a regression, [subjects]."""
        columns = [self.at[word] for word in set(words) if word in self.at]
        scores = self.table[columns].sum(axis=0) * self.temper + self.prior
        return STRENGTH * (_softmax(scores[None])[0] - self.usual)


def indexed(known: NDArray[np.uint32]) -> dict[int, int]:
    return dict(zip(known.tolist(), range(len(known)), strict=True))


def fit_topics(texts: Sequence[Sequence[int]], groups: Sequence[str]) -> tuple[Topics, Floats] | None:
    """The subjects, and the inputs of every training row as if the row had not been there.

    None where there are not two subjects, or no words.
    """
    names = tuple(sorted({group for group in groups if group}))
    counts = Counter(word for words in texts for word in set(words))
    known = np.array(sorted(word for word, count in counts.items() if count >= _LEAST), dtype=np.uint32)
    if len(names) < 2 or not len(known):
        return None
    at = indexed(known)
    rows = _present(texts, at)
    home = np.array([names.index(group) if group else -1 for group in groups])
    member = (home[:, None] == np.arange(len(names))).astype(np.float64)
    seen = rows.transposed_times(member)  # [words, subjects]
    total, texts_of = seen.sum(axis=0), member.sum(axis=0)
    weight = _SMOOTH * len(known)
    everywhere = np.log(seen.sum(axis=1) + _SMOOTH * len(names)) - np.log(total.sum() + weight * len(names))
    table = np.log(seen + _SMOOTH) - np.log(total + weight) - everywhere[:, None]
    scores = rows.times(table)
    _leave_out(scores, rows, home, seen, total, weight)
    prior = np.log((texts_of + 1.0) / (texts_of.sum() + len(names)))
    named = np.flatnonzero(home >= 0)
    losses = [
        -np.log(_softmax(scores[named] * temper + prior)[np.arange(len(named)), home[named]] + 1e-9).mean()
        for temper in _TEMPERS
    ]
    temper = _TEMPERS[int(np.argmin(losses))]
    chances = _softmax(scores * temper + prior)
    usual = chances.mean(axis=0)
    return Topics(names, known, table, prior, temper, usual, at), STRENGTH * (chances - usual)


def _present(texts: Sequence[Sequence[int]], at: dict[int, int]) -> Rows:
    columns: list[int] = []
    values: list[float] = []
    starts = [0]
    for words in texts:
        found = [at[word] for word in set(words) if word in at]
        columns += found or [0]
        values += [1.0] * len(found) or [0.0]
        starts.append(len(columns))
    return Rows(np.array(starts), np.array(columns, dtype=np.intp), np.array(values), len(at))


def _leave_out(
    scores: Floats, rows: Rows, home: NDArray[np.intp], seen: Floats, total: Floats, weight: float
) -> None:
    """Take every row's own words out of the counts of its own subject, in its own score."""
    lengths = np.diff(rows.starts)
    mine = np.repeat(home, lengths)
    inside = (mine >= 0) & (rows.values > 0)
    count = seen[rows.columns, np.maximum(mine, 0)]
    change = np.where(inside, np.log(np.maximum(count - 1.0, 0.0) + _SMOOTH) - np.log(count + _SMOOTH), 0.0)
    words = np.add.reduceat(rows.values, rows.starts[:-1])
    named = np.flatnonzero(home >= 0)
    of = home[named]
    shrunk = np.log(total[of] + weight) - np.log(np.maximum(total[of] - words[named], 0.0) + weight)
    change_of_row = np.add.reduceat(change, rows.starts[:-1])
    scores[named, of] += change_of_row[named] + words[named] * shrunk


def _softmax(scores: Floats) -> Floats:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))
