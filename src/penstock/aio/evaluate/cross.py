"""Cross-validation with thresholds from training rows only.

A model that has seen neither fold i nor fold j rates both. For judging fold i, the other folds j are rated by
the models without (i, j): so the rate for fold i comes from predictions of rows that no model was trained on,
and no row of fold i had a part in them. With k folds that takes k + k (k - 1) / 2 fits instead of k * k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.folds import Ints, outside

Floats = NDArray[np.float64]
Rate = Callable[[Dataset, Dataset], Floats]  # rows to learn from, rows to rate
LEAST = 3  # folds, for a training side that can be split again


@dataclass(frozen=True, slots=True)
class Crossed:
    """Predictions for every row by a model that was not trained on it."""

    fold: Ints  # [n]
    outer: Floats  # [n, m]
    inner: tuple[Floats, ...]  # for each fold i [n, m]: without fold i as well; nan in its own rows

    @property
    def folds(self) -> int:
        return int(self.fold.max()) + 1

    def judged(self, at: int) -> Ints:
        """The rows of this fold."""
        return np.flatnonzero(self.fold == at)

    def known(self, at: int) -> Ints:
        """The rows whose predictions may set thresholds for this fold; none with too few folds."""
        return np.flatnonzero(np.isfinite(self.inner[at]).all(axis=1))


def cross(data: Dataset, fold: Ints, rate: Rate, step: Callable[[], None]) -> Crossed:
    """Rate every row; `step` is called after each fit."""
    folds = int(fold.max()) + 1
    shape = data.ok.shape
    outer = np.full(shape, np.nan)
    inner = tuple(np.full(shape, np.nan) for _ in range(folds))
    for at in range(folds):
        rows = np.flatnonzero(fold == at)
        outer[rows] = rate(data.rows(outside(data, fold, (at,))), data.rows(rows))
        step()
    for first, second in combinations(range(folds), 2) if folds >= LEAST else ():
        rows = np.flatnonzero((fold == first) | (fold == second))
        both = rate(data.rows(outside(data, fold, (first, second))), data.rows(rows))
        of_second = fold[rows] == second
        inner[first][rows[of_second]] = both[of_second]
        inner[second][rows[~of_second]] = both[~of_second]
        step()
    return Crossed(fold, outer, inner)


def fits(folds: int) -> int:
    """How often `cross` trains."""
    return folds + (folds * (folds - 1) // 2 if folds >= LEAST else 0)
