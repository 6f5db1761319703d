"""What a router must offer to be judged: a recipe is fitted to rows, and then rates queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.query import Query


class Fitted(Protocol):
    """A recipe after training: for each query and each model of the training table, in its order."""

    def predict(self, queries: Sequence[Query]) -> NDArray[np.float64]:
        """[n, m] probabilities that the answer is good enough."""
        ...

    def deviation(self, queries: Sequence[Query]) -> NDArray[np.float64]:
        """[n, m] standard deviations of those probabilities; zeros where a recipe has no idea of them."""
        ...


class Recipe(Protocol):
    """A way of making a router from outcomes."""

    name: str

    def fit(self, train: Dataset, also: Sequence[Dataset]) -> Fitted:
        """Train on `train`; `also` are other tables that may help, without any question that is judged."""
        ...
