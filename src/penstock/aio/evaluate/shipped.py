"""The predictor that is shipped, as it is: judged on the questions of a file that it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from penstock.aio.choose import shares, solve
from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.folds import by_question
from penstock.aio.evaluate.intervals import Figure, figure
from penstock.aio.evaluate.metrics import Calibration, calibration
from penstock.aio.evaluate.saving import applied
from penstock.aio.evaluate.split import gain_curve
from penstock.aio.predictor import Predictor, load_predictor
from penstock.errors import ConfigError

Floats = NDArray[np.float64]
LEAST = 20  # rows: fewer say nothing


class Learned(Predictor, Protocol):
    """A predictor that says what it was trained on."""

    @property
    def trained_keys(self) -> frozenset[str]:
        """Questions that must not be used to judge it."""

    @property
    def trained_groups(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class Shipped:
    """A predictor and what it was trained on."""

    predictor: Predictor
    keys: frozenset[str]  # of the questions
    groups: frozenset[str]  # the subjects


@dataclass(frozen=True, slots=True)
class Part:
    """Figures over some rows; thresholds come from the sample that is shipped with the model."""

    rows: int
    apgr: Figure | None
    quality: Figure | None
    saving: Figure | None
    saving_net: Figure | None
    calibration: dict[str, Calibration]


@dataclass(frozen=True, slots=True)
class ShippedFigures:
    """Rows by whether their subject was trained on; None for a part with too few rows."""

    version: str
    trained_on: int  # rows that were left out because their question was trained on
    why_not: str  # a sentence where there is no figure at all
    all: Part | None = None
    seen: Part | None = None
    unseen: Part | None = None


def load_shipped(which: str) -> Shipped:
    """Trained predictors, shipped or a user's own, all say what they were trained on."""
    predictor = cast(Learned, load_predictor(which))
    return Shipped(predictor, predictor.trained_keys, predictor.trained_groups)


def judge_shipped(shipped: Shipped, data: Dataset, target: float, folds: int, seed: int) -> ShippedFigures:
    """No row whose question the model has seen is judged."""
    predictor = shipped.predictor
    fresh = data.without(shipped.keys)
    trained_on = len(data) - len(fresh)
    unknown = [model for model in data.models if model not in predictor.references]
    why_not = ""
    if unknown:
        why_not = f"The shipped model was not trained on {', '.join(unknown)}."
    elif len(fresh) < LEAST:
        why_not = (
            f"{trained_on} of {len(data)} rows are questions that the shipped model was trained on; "
            f"the other {len(fresh)} are too few to judge it by."
        )
    if why_not:
        return ShippedFigures(predictor.version, trained_on, why_not)
    try:
        rated = [predictor.rate(query, fresh.models).quality for query in fresh.queries]
    except ConfigError as error:  # models that it knows, but cannot weigh against each other
        return ShippedFigures(predictor.version, trained_on, str(error))
    quality = np.array(rated, dtype=np.float64)
    rate = _rate(predictor, fresh, target)
    known = np.array([group in shipped.groups for group in fresh.groups or [""] * len(fresh)], dtype=bool)

    def part(rows: NDArray[np.intp]) -> Part | None:
        if len(rows) < LEAST:
            return None
        return _part(fresh.rows(rows), quality[rows], rate, folds, seed)

    return ShippedFigures(
        predictor.version,
        trained_on,
        "",
        all=part(np.arange(len(fresh))),
        seen=part(np.flatnonzero(known)) if fresh.groups is not None else None,
        unseen=part(np.flatnonzero(~known)) if fresh.groups is not None else None,
    )


def _rate(predictor: Predictor, data: Dataset, target: float) -> float | None:
    """From the shipped sample; None where no query of it was put to all of these models."""
    sample = predictor.sample
    columns = [sample.references.index(model) for model in data.models if model in sample.references]
    if len(columns) < len(data.models):
        return None
    ok = sample.ok[:, columns].astype(np.float64)
    rows = np.isfinite(ok).all(axis=1)
    if rows.sum() < LEAST:
        return None
    costs = np.array(shares([float(cost) for cost in data.cost]))
    return solve(sample.quality[:, columns].astype(np.float64)[rows], ok[rows], costs, target).rate


def _part(data: Dataset, quality: Floats, rate: float | None, folds: int, seed: int) -> Part:
    fold = by_question(data, folds, seed)
    parts = [np.flatnonzero(fold == at) for at in range(int(fold.max()) + 1)]
    costs = np.array(shares([float(cost) for cost in data.cost]))
    two = len(data.models) == 2
    curves = [gain_curve(quality[rows], data.ok[rows]).apgr for rows in parts] if two else []
    savings = (
        [] if rate is None else [applied(quality[rows], data.ok[rows], costs, rate, 0.0) for rows in parts]
    )
    return Part(
        rows=len(data),
        apgr=figure(curves, len(parts)),
        quality=figure([saving.quality for saving in savings], len(parts)),
        saving=figure([saving.gross for saving in savings], len(parts)),
        saving_net=figure([saving.net for saving in savings], len(parts)),
        calibration={
            model: calibration(quality[:, column], data.ok[:, column])
            for column, model in enumerate(data.models)
        },
    )
