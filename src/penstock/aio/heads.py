"""Heads: a logistic regression for each reference model, over the vector a predictor makes of a query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Head:
    """A model's chance to answer well, sigmoid(intercept + coefficients . vector), and how sure that is.

    `covariance` is of (coefficients, intercept) in that order, from a Laplace approximation. Refitting takes
    the old head as its prior: mean (coefficients, intercept), precision the inverse of `covariance`.
    """

    coefficients: NDArray[np.float32]  # [d]
    intercept: float
    covariance: NDArray[np.float32]  # [d + 1, d + 1]
