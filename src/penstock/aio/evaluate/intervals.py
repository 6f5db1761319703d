"""A figure with its interval: the mean over folds, and how far it may be off.

The interval is Student's t over the folds at 95%. Repeating a cross-validation with other folds steadies the
mean, but the rows stay the same, so repeats are never counted as more folds: with k folds the half-width is
t(k-1) s / sqrt(k), s being the standard deviation of all fold values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# The 97.5% point of Student's t for 1, 2, ... degrees of freedom.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """`low` and `high` bound the mean at 95%; both None with fewer than two folds."""

    mean: float
    low: float | None
    high: float | None
    folds: tuple[float, ...]

    @property
    def half(self) -> float | None:
        return None if self.high is None else self.high - self.mean


def figure(values: Sequence[float | None], folds: int) -> Figure | None:
    """Of the values of all folds and repeats; folds without a value are left out. None if all are."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean = float(np.mean(known))
    count = min(folds, len(known))
    if count < 2:
        return Figure(mean, None, None, tuple(known))
    half = _T[min(count - 1, len(_T)) - 1] * float(np.std(known, ddof=1)) / count**0.5
    return Figure(mean, mean - half, mean + half, tuple(known))
