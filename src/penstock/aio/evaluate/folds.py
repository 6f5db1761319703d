"""Splitting rows so that a question is never on both sides.

`by_question` keeps rows with one key together and is otherwise random: subjects that are judged were seen in
training. `by_group` keeps whole subjects together: those that are judged were never seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.aio.evaluate.dataset import Dataset

Ints = NDArray[np.intp]


def by_question(data: Dataset, folds: int, seed: int) -> Ints:
    """The fold of each row, [n]; fewer folds where there are fewer questions."""
    return _dealt(data.keys, folds, seed)


def by_group(data: Dataset, folds: int, seed: int) -> Ints | None:
    """The same with whole subjects in one fold; None without at least two subjects."""
    if data.groups is None or len(set(data.groups)) < 2:
        return None
    return _dealt(data.groups, folds, seed)


def outside(data: Dataset, fold: Ints, left_out: Sequence[int]) -> Ints:
    """The rows to train on when these folds are left out: none of them, and none of their questions.

    The same question may stand under two subjects, and so in two folds of `by_group`.
    """
    inside = np.isin(fold, left_out)
    hidden = {data.keys[int(row)] for row in np.flatnonzero(inside)}
    return np.array([row for row in np.flatnonzero(~inside) if data.keys[row] not in hidden], dtype=np.intp)


def _dealt(labels: Sequence[str], folds: int, seed: int) -> Ints:
    """Rows of one label in one fold, folds of about equal size: large labels first, then to the smallest."""
    names, place, count = np.unique(
        np.asarray(labels, dtype=np.str_), return_inverse=True, return_counts=True
    )
    shuffled = np.random.default_rng(seed).permutation(len(names))
    order = shuffled[np.argsort(-count[shuffled], kind="stable")]
    folds = min(folds, len(names))
    size = np.zeros(folds, dtype=np.intp)
    home = np.empty(len(names), dtype=np.intp)
    for label in order:
        home[label] = int(size.argmin())
        size[home[label]] += count[label]
    return home[place.reshape(-1)]
