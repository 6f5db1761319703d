"""Cross-validation with thresholds from training rows only.

For each fold that is judged, its training rows are dealt again into more and smaller parts, and each part is
rated by a model that was trained on the others. So the rate for a fold comes from predictions of rows that no
model was trained on, no row of the fold had a part in them, and those models saw nearly as many rows as the
one that is judged: fewer would make them worse, and thresholds from them too careful.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.folds import Ints, outside

Floats = NDArray[np.float64]
# Rows to learn from, rows to rate, and the questions that nothing else may be learnt of.
Rate = Callable[[Dataset, Dataset, frozenset[str]], Floats]
Deal = Callable[[Dataset], Ints | None]  # the part of each row; None where they cannot be parted
LEAST = 3  # folds, for a training side that can be split again
PARTS = 10  # of a fold's training rows


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


def cross(data: Dataset, fold: Ints, rate: Rate, deal: Deal, step: Callable[[], None]) -> Crossed:
    """Rate every row; `deal` parts training rows again, `step` is called after each fit."""
    folds = int(fold.max()) + 1
    shape = data.ok.shape
    outer = np.full(shape, np.nan)
    inner = tuple(np.full(shape, np.nan) for _ in range(folds))
    for at in range(folds):
        rows = np.flatnonzero(fold == at)
        learnt = outside(data, fold, (at,))
        judged = data.rows(rows)
        hidden = frozenset(judged.keys)
        outer[rows] = rate(data.rows(learnt), judged, hidden)
        step()
        training = data.rows(learnt)
        part = deal(training) if folds >= LEAST else None
        if part is None:
            continue
        for number in np.unique(part):
            held = np.flatnonzero(part == number)
            rest, left = training.rows(outside(training, part, (int(number),))), training.rows(held)
            inner[at][learnt[held]] = rate(rest, left, hidden | frozenset(left.keys))
            step()
    return Crossed(fold, outer, inner)


def fits(folds: int) -> int:
    """How often `cross` trains, about."""
    return folds + (folds * PARTS if folds >= LEAST else 0)
