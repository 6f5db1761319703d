"""Heads fitted anew from verdicts: logistic regressions that leave the old head reluctantly.

The old head is the prior: its coefficients are the mean, its covariance says how firmly each is held. How far
to trust it on this traffic, the `strength`, is chosen by cross-validation, and a head that predicts no better
than the old one on rows it has not seen is not taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.aio.heads import Head
from penstock.errors import ConfigError

Floats = NDArray[np.float64]

LEAST_ROWS: Final = 60
LEAST_OF_A_CLASS: Final = 8  # rows with a good answer, and with a bad one
STRENGTHS: Final = (1.0, 0.3, 0.1, 0.03, 0.01)
_FOLDS: Final = 5
_STEPS: Final = 30  # of Newton's method; it needs about six
_RIDGE: Final = 1e-6  # of the mean variance: a covariance that was rounded to float32 may be singular


@dataclass(frozen=True, slots=True)
class Rows:
    """What was seen of one reference's answers: vectors, outcomes in [0, 1], and what each row counts."""

    vectors: NDArray[np.float32]  # [n, d]
    outcomes: Floats  # [n]
    weights: Floats  # [n]


@dataclass(frozen=True, slots=True)
class Refit:
    """A head, and how it fares beside the old one on rows that it was not fitted to (log loss, nats)."""

    head: Head
    rows: int
    strength: float
    before: float
    after: float
    error: float  # standard error of the difference

    @property
    def better(self) -> bool:
        """By more than chance, since the best of several strengths was picked."""
        return self.before - self.after > self.error


@dataclass(frozen=True, slots=True)
class Retrained:
    """All heads, old ones where nothing better was found; for each of those a sentence says why."""

    heads: dict[str, Head]
    refits: dict[str, Refit]
    refused: dict[str, str]

    @property
    def changed(self) -> bool:
        return bool(self.refits)


def retrain(heads: Mapping[str, Head], rows: Mapping[str, Rows]) -> Retrained:
    """Fit every head for which there are rows, and keep what is better."""
    result = dict(heads)
    refits: dict[str, Refit] = {}
    refused: dict[str, str] = {}
    for reference, head in heads.items():
        if reference not in rows:
            continue
        try:
            refit = cross_validated(head, rows[reference])
        except ConfigError as error:
            refused[reference] = str(error)
            continue
        if refit.better:
            result[reference], refits[reference] = refit.head, refit
        else:
            refused[reference] = (
                f"A new head would predict {refit.rows} unseen verdicts no better than the old one "
                f"(log loss {refit.after:.3f}, now {refit.before:.3f})."
            )
    return Retrained(result, refits, refused)


def cross_validated(head: Head, rows: Rows) -> Refit:
    """Choose the strength on held-out rows, then fit to all. Raises ConfigError when there is too little."""
    _check(head, rows)
    n = len(rows.outcomes)
    # Rows come in the order of time, so folds that take turns all see every period.
    fold = np.arange(n) % _FOLDS
    before = _losses(head, rows)
    held: dict[float, Floats] = {}
    for strength in STRENGTHS:
        held[strength] = np.empty(n)
        for k in range(_FOLDS):
            fitted = refit(head, _part(rows, fold != k), strength)
            held[strength][fold == k] = _losses(fitted, _part(rows, fold == k))
    best = min(STRENGTHS, key=lambda strength: float(held[strength] @ rows.weights))
    share = rows.weights / rows.weights.sum()
    gained = before - held[best]
    error = float(np.sqrt(share**2 @ (gained - share @ gained) ** 2))
    return Refit(refit(head, rows, best), n, best, float(share @ before), float(share @ held[best]), error)


def refit(head: Head, rows: Rows, strength: float = 1.0) -> Head:
    """The head that the rows and the old one, weighed by `strength`, make most likely (Newton's method)."""
    design = _design(rows.vectors)
    prior = np.append(head.coefficients, head.intercept).astype(np.float64)
    covariance = head.covariance.astype(np.float64)
    covariance = (covariance + covariance.T) / 2
    ridge = _RIDGE * max(float(np.trace(covariance)) / len(covariance), 1e-12)
    precision = strength * np.linalg.inv(covariance + ridge * np.eye(len(covariance)))

    def objective(at: Floats) -> float:
        score = design @ at
        likelihood = rows.weights * (rows.outcomes * score - np.logaddexp(0.0, score))
        return float(0.5 * (at - prior) @ precision @ (at - prior) - likelihood.sum())

    theta, value = prior, objective(prior)
    hessian = precision
    for _ in range(_STEPS):
        p = _sigmoid(design @ theta)
        gradient = precision @ (theta - prior) - design.T @ (rows.weights * (rows.outcomes - p))
        hessian = precision + design.T @ (design * (rows.weights * p * (1 - p))[:, None])
        step = np.linalg.solve(hessian, gradient)
        length = 1.0
        while (found := objective(theta - length * step)) > value and length > 1e-4:
            length /= 2
        if found > value:
            break
        theta, gained, value = theta - length * step, value - found, found
        if gained < 1e-9 * (1.0 + abs(value)):
            break
    return Head(
        coefficients=theta[:-1].astype(np.float32),
        intercept=float(theta[-1]),
        covariance=np.linalg.inv(hessian).astype(np.float32),
    )


def _check(head: Head, rows: Rows) -> None:
    n = len(rows.outcomes)
    if rows.vectors.shape != (n, len(head.coefficients)) or rows.weights.shape != (n,):
        raise ConfigError(
            f"Vectors of shape {rows.vectors.shape} do not fit {n} outcomes and a head of "
            f"{len(head.coefficients)} coefficients; learn from verdicts that this predictor rated."
        )
    finite = np.isfinite(rows.vectors).all() and np.isfinite(rows.weights).all()
    if not (finite and (rows.weights > 0).all() and ((rows.outcomes >= 0) & (rows.outcomes <= 1)).all()):
        raise ConfigError(
            "Verdicts to learn from must have finite vectors, weights above 0 and outcomes from 0 to 1."
        )
    # A good answer to a question that is too hard for anybody has an outcome just above 0.
    good = int((rows.outcomes > 0).sum())
    if n < LEAST_ROWS or min(good, n - good) < LEAST_OF_A_CLASS:
        raise ConfigError(
            f"{n} verdicts, {good} of them good, are too few to learn from; {LEAST_ROWS} are needed, "
            f"at least {LEAST_OF_A_CLASS} good and {LEAST_OF_A_CLASS} bad."
        )


def _part(rows: Rows, chosen: NDArray[np.bool_]) -> Rows:
    return Rows(rows.vectors[chosen], rows.outcomes[chosen], rows.weights[chosen])


def _design(vectors: NDArray[np.float32]) -> Floats:
    return np.hstack([vectors.astype(np.float64), np.ones((len(vectors), 1))])


def _sigmoid(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-np.clip(x, -40.0, 40.0)))


def _losses(head: Head, rows: Rows) -> Floats:
    """The log loss of each row."""
    score = _design(rows.vectors) @ np.append(head.coefficients, head.intercept).astype(np.float64)
    losses: Floats = np.logaddexp(0.0, score) - rows.outcomes * score
    return losses


class _Packed(msgspec.Struct, frozen=True):
    coefficients: bytes  # float32, little-endian
    intercept: float
    covariance: bytes


def pack_heads(heads: Mapping[str, Head]) -> bytes:
    """Heads as bytes for the store."""
    return msgspec.msgpack.encode(
        {
            name: _Packed(
                head.coefficients.astype("<f4").tobytes(),
                head.intercept,
                head.covariance.astype("<f4").tobytes(),
            )
            for name, head in heads.items()
        }
    )


def unpack_heads(packed: bytes) -> dict[str, Head]:
    heads = {}
    for name, head in msgspec.msgpack.decode(packed, type=dict[str, _Packed]).items():
        coefficients = np.frombuffer(head.coefficients, "<f4").astype(np.float32)
        size = len(coefficients) + 1
        covariance = np.frombuffer(head.covariance, "<f4").astype(np.float32).reshape(size, size)
        heads[name] = Head(coefficients, head.intercept, covariance)
    return heads
