"""Figures of merit, as the field defines them; arrays in, numbers out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CUTS = 10  # RouteLLM's number of thresholds


@dataclass(frozen=True, slots=True)
class Curve:
    """Accuracy over the share of queries that are sent to the strong model, from none to all."""

    share: Floats
    accuracy: Floats

    @property
    def apgr(self) -> float | None:
        """Average performance gap recovered: the area between the weak model's accuracy and the curve, as a
        share of that between weak and strong. None where strong is no better: there is no gap."""
        weak, strong = self.accuracy[0], self.accuracy[-1]
        if strong <= weak:
            return None
        return float((np.trapezoid(self.accuracy, self.share) - weak) / (strong - weak))

    def cpt(self, recovered: float) -> float | None:
        """Call-performance threshold: the least share of strong calls that recovers this much of the gap."""
        weak, strong = self.accuracy[0], self.accuracy[-1]
        if strong <= weak:
            return None
        wanted = weak + recovered * (strong - weak)
        at = int(np.argmax(self.accuracy >= wanted - 1e-12))
        if at == 0:
            return float(self.share[0])
        low, high = self.accuracy[at - 1], self.accuracy[at]
        part = (wanted - low) / (high - low)
        return float(self.share[at - 1] + part * (self.share[at] - self.share[at - 1]))


def curve(scores: Floats, weak: Floats, strong: Floats, cuts: int = CUTS) -> Curve:
    """Send to strong where the score is at least a threshold; thresholds are the edges of equal-sized bins.

    The edges are those of `pandas.qcut(scores, cuts)`, of equal ones only one; above the last none is sent.
    """
    edges = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, cuts + 1)))
    points = [(0.0, float(weak.mean()))]
    for edge in edges[::-1]:
        sent = scores >= edge
        points.append((float(sent.mean()), float(np.where(sent, strong, weak).mean())))
    share, accuracy = np.array(points, dtype=np.float64).T
    return Curve(share, accuracy)


def auc(scores: Floats, good: NDArray[np.bool_]) -> float | None:
    """The probability that a good row scores above a bad one, ties counting half; None with one class."""
    positives = int(good.sum())
    negatives = len(good) - positives
    if not positives or not negatives:
        return None
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    ranks = (ends - (count - 1) / 2.0)[place]  # the mean rank of equals, from 1
    return float((ranks[good].sum() - positives * (positives + 1) / 2.0) / (positives * negatives))


@dataclass(frozen=True, slots=True)
class Bin:
    """Predictions of one tenth of the scale: how sure they were, and how it turned out."""

    low: float
    high: float
    rows: int
    predicted: float
    observed: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far probabilities can be believed."""

    brier: float  # mean squared error of the probability
    ece: float  # expected calibration error: mean distance of predicted and observed, weighed by rows
    bins: tuple[Bin, ...]


def calibration(predicted: Floats, ok: Floats, bins: int = 10) -> Calibration:
    """Over bins of equal width; empty ones are left out."""
    at = np.clip((predicted * bins).astype(np.intp), 0, bins - 1)
    found = []
    for index in range(bins):
        inside = at == index
        if inside.any():
            mean, seen = float(predicted[inside].mean()), float(ok[inside].mean())
            found.append(Bin(index / bins, (index + 1) / bins, int(inside.sum()), mean, seen))
    ece = sum(part.rows * abs(part.predicted - part.observed) for part in found) / max(1, len(ok))
    return Calibration(float(np.mean((predicted - ok) ** 2)), ece, tuple(found))
