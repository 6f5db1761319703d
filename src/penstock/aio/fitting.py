"""Fitting what stands between an embedding and a probability.

How well a model answers is split in two: how hard a query is for all models together, and how much better or
worse than the others each one does on it. The second is what routing lives on and is mostly noise: so each
part is a ridge regression with a penalty of its own, chosen by the error on rows left out one by one, which
has a closed form. Subjects, where rows have them, are learnt first, and their probabilities are inputs of the
regressions. A logistic head for each model then turns the parts into a calibrated probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.aio.heads import Head

Floats = NDArray[np.float64]

EMBEDDED: Final = 12.0  # the length of a usual embedding beside features of variance 1
TOPIC_PENALTY: Final = 200.0
SHARPNESS: Final = 12.0  # of the softmax over subjects
TOPICS: Final = 30.0  # the length of a certain subject beside the other inputs
PENALTIES: Final = np.geomspace(30.0, 1e5, 18)
FAMILIAR: Final = 48  # directions in which training rows are told from strange ones
_STEPS: Final = 12  # of Newton's method
_TURNS: Final = 20
_FARTHEST: Final = 5.0  # standard deviations: what training hardly saw must not decide
_FREE: Final = 1e-2  # prior precision of a head's own coefficients
_BOUND: Final = 1e4  # and of those on other models' parts: refitting may move them a little


@dataclass(frozen=True, slots=True)
class Inputs:
    """From an embedding and features to the inputs of the regressions."""

    embedding_mean: Floats  # [width]
    embedding_scale: float
    feature_mean: Floats  # [features]
    feature_scale: Floats
    topics: tuple[str, ...]
    topic_weights: Floats  # [width + features, topics]
    topic_intercepts: Floats  # [topics]

    def scaled(self, embeddings: Floats, features: Floats) -> Floats:
        measured = (features - self.feature_mean) / self.feature_scale
        return np.hstack(
            [
                (embeddings - self.embedding_mean) * self.embedding_scale,
                np.clip(measured, -_FARTHEST, _FARTHEST),
            ]
        )

    def of(self, embeddings: Floats, features: Floats) -> Floats:
        """[n, width + features + topics]"""
        scaled = self.scaled(embeddings, features)
        if not self.topics:
            return scaled
        return np.hstack([scaled, TOPICS * softmax(scaled @ self.topic_weights + self.topic_intercepts)])


@dataclass(frozen=True, slots=True)
class Doubt:
    """How unsure it is how hard a query is: the ridge regression's own variance, in its main directions."""

    centre: Floats  # [inputs]
    familiar: Floats  # [inputs, directions]: what training rows have taught is taken off along these
    rest: float  # how well all other directions are known, on average
    noise: float  # variance of what the regression cannot tell

    def variance(self, x: Floats) -> Floats:
        """[n]; the farther from all training rows, the larger."""
        away = x - self.centre
        unknown = (away**2).sum(axis=1) / self.rest - ((away @ self.familiar) ** 2).sum(axis=1)
        return np.asarray(self.noise * np.maximum(unknown, 0.0))


@dataclass(frozen=True, slots=True)
class Trained:
    """Everything that is learnt. `weights` has a column for how hard a query is, and one for each model."""

    inputs: Inputs
    models: tuple[str, ...]
    weights: Floats  # [inputs, 1 + models]
    intercepts: Floats  # [1 + models]
    heads: dict[str, Head]
    doubt: Doubt

    def vectors(self, embeddings: Floats, features: Floats) -> tuple[Floats, Floats]:
        """[n, 1 + models], what the heads see; and [n], the variance of the first column."""
        x = self.inputs.of(embeddings, features)
        return np.asarray(x @ self.weights + self.intercepts), self.doubt.variance(x)


def train(
    embeddings: Floats, features: Floats, ok: Floats, models: tuple[str, ...], groups: Sequence[str]
) -> tuple[Trained, Floats]:
    """And the vectors of the training rows, each as if it had been left out.

    `ok` [n, m] may have gaps (nan), but no empty row or column; `groups` [n] are subjects, empty where a row
    has none.
    """
    inputs, x = _inputs(embeddings, features, groups)
    hard, usual = _effects(ok)
    parts = np.hstack([hard[:, None], ok - hard[:, None] - usual])
    weights = np.zeros((x.shape[1], parts.shape[1]))
    intercepts = np.zeros(parts.shape[1])
    left_out = np.full(parts.shape, np.nan)
    doubt: Doubt | None = None
    for rows, columns in _measured_alike(parts):
        ridge = Ridge(x[rows])
        for column in columns:
            penalty = ridge.penalty(parts[rows, column])
            fitted = ridge.at(parts[rows, column, None], penalty)
            weights[:, column], intercepts[column], left_out[rows, column] = (part[..., 0] for part in fitted)
            if column == 0:
                doubt = ridge.doubt(penalty, float(np.mean((left_out[rows, 0] - parts[rows, 0]) ** 2)))
    assert doubt is not None  # the first column is among them
    heads = {model: _head(left_out, ok[:, at], at + 1) for at, model in enumerate(models)}
    # Where a model was not measured, the part it would have had is what is usual: none.
    return Trained(inputs, models, weights, intercepts, heads, doubt), np.nan_to_num(left_out)


def _effects(ok: Floats) -> tuple[Floats, Floats]:
    """What is particular to each row and to each model, by turns until both agree: rows are measured on
    different models, and an easy file must not make its models look good."""
    rows, models = np.zeros(len(ok)), np.zeros(ok.shape[1])
    for _ in range(_TURNS):
        models = np.nanmean(ok - rows[:, None], axis=0)
        rows = np.nanmean(ok - models, axis=1)
        rows -= rows.mean()
    return rows, models


def _inputs(embeddings: Floats, features: Floats, groups: Sequence[str]) -> tuple[Inputs, Floats]:
    """And the training rows' own: with subjects as they look when the row itself is left out."""
    mean = embeddings.mean(axis=0)
    length = float(np.sqrt(((embeddings - mean) ** 2).sum(axis=1).mean())) or 1.0
    plain = Inputs(
        mean,
        EMBEDDED / length,
        features.mean(axis=0),
        np.maximum(features.std(axis=0), 1e-3),
        (),
        np.zeros((0, 0)),
        np.zeros(0),
    )
    scaled = plain.scaled(embeddings, features)
    topics = tuple(sorted({group for group in groups if group}))
    if len(topics) < 2:
        return plain, scaled
    named = np.array([row for row, group in enumerate(groups) if group])
    member = np.array([[groups[row] == topic for topic in topics] for row in named], dtype=np.float64)
    weights, intercepts, left_out = Ridge(scaled[named]).at(member, TOPIC_PENALTY)
    scores = scaled @ weights + intercepts
    scores[named] = left_out
    inputs = Inputs(
        plain.embedding_mean,
        plain.embedding_scale,
        plain.feature_mean,
        plain.feature_scale,
        topics,
        weights,
        intercepts,
    )
    return inputs, np.hstack([scaled, TOPICS * softmax(scores)])


class Ridge:
    """Ridge regressions on the same rows, with the prediction of every row by a fit without it."""

    def __init__(self, x: Floats) -> None:
        self._mean = x.mean(axis=0)
        centred = x - self._mean
        values, self._basis = np.linalg.eigh(centred.T @ centred)
        self._values = np.maximum(values, 0.0)
        self._rotated = centred @ self._basis
        self._squared = self._rotated**2

    def at(self, y: Floats, penalty: float) -> tuple[Floats, Floats, Floats]:
        """Weights [inputs, columns], intercepts and left-out predictions [n, columns]."""
        mean = y.mean(axis=0)
        inner = (self._rotated.T @ (y - mean)) / (self._values + penalty)[:, None]
        fitted = self._rotated @ inner + mean
        lever = self._squared @ (1.0 / (self._values + penalty)) + 1.0 / len(y)
        weights = self._basis @ inner
        left_out = (fitted - lever[:, None] * y) / (1.0 - lever)[:, None]
        return weights, mean - self._mean @ weights, left_out

    def doubt(self, penalty: float, noise: float) -> Doubt:
        values, basis = self._values[-FAMILIAR:], self._basis[:, -FAMILIAR:]  # the largest come last
        rest = float(self._values[:-FAMILIAR].mean()) if len(self._values) > FAMILIAR else 0.0
        known = np.maximum(0.0, 1.0 / (rest + penalty) - 1.0 / (values + penalty))
        return Doubt(self._mean, basis * np.sqrt(known), rest + penalty, noise)

    def penalty(self, y: Floats) -> float:
        """The one whose left-out error is least, for one column."""
        mean = float(y.mean())
        projected = self._rotated.T @ (y - mean)
        errors = []
        for penalty in PENALTIES:
            shrunk = 1.0 / (self._values + penalty)
            rest = y - mean - self._rotated @ (projected * shrunk)
            errors.append(float(np.mean((rest / (1.0 - self._squared @ shrunk - 1.0 / len(y))) ** 2)))
        return float(PENALTIES[int(np.argmin(errors))])


def _measured_alike(parts: Floats) -> list[tuple[NDArray[np.intp], list[int]]]:
    """Columns by the rows they were measured on: one decomposition serves all columns of the same rows."""
    found: dict[bytes, tuple[NDArray[np.intp], list[int]]] = {}
    for column in range(parts.shape[1]):
        known = np.isfinite(parts[:, column])
        found.setdefault(known.tobytes(), (np.flatnonzero(known), []))[1].append(column)
    return list(found.values())


def _head(left_out: Floats, ok: Floats, column: int) -> Head:
    """A logistic regression on how hard a query is and on the model's own part; next to nothing on others."""
    rows = np.isfinite(ok)
    width = left_out.shape[1]
    design = np.zeros((int(rows.sum()), width + 1))
    design[:, 0], design[:, column], design[:, -1] = left_out[rows, 0], left_out[rows, column], 1.0
    precision = np.full(width + 1, _BOUND)
    precision[[0, column, width]] = _FREE
    outcome = ok[rows]
    weights = np.zeros(width + 1)
    hessian = np.diag(precision)
    for _ in range(_STEPS):
        chance = sigmoid(design @ weights)
        slope = design.T @ (chance - outcome) + precision * weights
        hessian = (design * (chance * (1.0 - chance))[:, None]).T @ design + np.diag(precision)
        weights = weights - np.linalg.solve(hessian, slope)
    return Head(
        weights[:-1].astype(np.float32), float(weights[-1]), np.linalg.inv(hessian).astype(np.float32)
    )


def rated(vectors: Floats, doubt: Floats, heads: Sequence[Head]) -> tuple[Floats, Floats]:
    """Probabilities [n, heads] and their standard deviations; `doubt` is the variance of the first column."""
    design = np.hstack([vectors, np.ones((len(vectors), 1))])
    chances, deviations = [], []
    for head in heads:
        chance = sigmoid(vectors @ head.coefficients + head.intercept)
        variance = ((design @ head.covariance) * design).sum(axis=1) + float(
            head.coefficients[0]
        ) ** 2 * doubt
        chances.append(chance)
        deviations.append(chance * (1.0 - chance) * np.sqrt(variance))
    return np.stack(chances, axis=1), np.stack(deviations, axis=1)


def softmax(scores: Floats) -> Floats:
    raised = np.exp(SHARPNESS * (scores - scores.max(axis=1, keepdims=True)))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def sigmoid(value: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(value, -30.0, 30.0))))
