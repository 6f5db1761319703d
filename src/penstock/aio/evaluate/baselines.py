"""What a router must beat: rules that anybody could write down, and the best that could be done.

A rater takes the rows to learn from and the rows to rate, and gives [n, m] qualities. Unlike a recipe it may
look at more than the query: at the subject, or, as the oracle does, at the outcomes themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from penstock.aio.evaluate.dataset import Dataset

Floats = NDArray[np.float64]
Rater = Callable[[Dataset, Dataset], Floats]

_WEIGHT = 10.0  # rows: how much of the overall rate a small subject keeps


def length(train: Dataset, test: Dataset) -> Floats:
    """A straight line through quality over the rank of the prompt's length."""
    known = np.sort([float(len(text)) for text in train.texts])
    place = _ranks(known, train)
    spread = float(place.var()) or 1.0
    slope = ((place - place.mean())[:, None] * train.ok).mean(axis=0) / spread
    line = train.ok.mean(axis=0) + (_ranks(known, test) - place.mean())[:, None] * slope
    return np.asarray(np.clip(line, 0.0, 1.0), dtype=np.float64)


def _ranks(known: Floats, data: Dataset) -> Floats:
    lengths = np.array([float(len(text)) for text in data.texts])
    # Lengths beyond all known ones keep their order: clipping them to one rank would throw it away.
    beyond = 1e-9 * np.maximum(0.0, lengths - known[-1])
    return np.asarray(np.searchsorted(known, lengths) / len(known) + beyond, dtype=np.float64)


def base_rate(train: Dataset, test: Dataset) -> Floats:
    """The mean quality of the query's subject; of all subjects where it has none, or a new one."""
    overall = train.ok.mean(axis=0)
    if train.groups is None or test.groups is None:
        return np.tile(overall, (len(test), 1))
    rows: dict[str, list[int]] = defaultdict(list)
    for row, group in enumerate(train.groups):
        rows[group].append(row)
    rates = {
        group: (train.ok[at].sum(axis=0) + _WEIGHT * overall) / (len(at) + _WEIGHT)
        for group, at in rows.items()
    }
    return np.array([rates.get(group, overall) for group in test.groups], dtype=np.float64)


def oracle(train: Dataset, test: Dataset) -> Floats:
    """Knows the outcomes: nobody can do better."""
    return test.ok


BASELINES: dict[str, Rater] = {"length": length, "base_rate": base_rate, "oracle": oracle}
