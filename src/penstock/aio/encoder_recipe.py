"""The recipe `encoder`: a MiniLM embedding beside the dense features, and heads on top."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.aio.encoder_training import Trained, rated, train
from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.encoded import KeptEmbeddings
from penstock.aio.features import features
from penstock.aio.query import Query

Floats = NDArray[np.float64]
Embed = Callable[[Sequence[str]], NDArray[np.float32]]


class EncoderRecipe:
    """Trains on everything it is given; what was embedded once is kept."""

    name = "encoder"

    def __init__(self, embed: Embed | None = None) -> None:
        self._embed = embed if embed is not None else KeptEmbeddings().embed
        self._features: dict[Query, Floats] = {}

    def fit(self, train_: Dataset, also: Sequence[Dataset]) -> EncoderFitted:
        tables = [train_, *also]
        queries = [query for table in tables for query in table.queries]
        ok = np.vstack([columns_of(table, train_.models) for table in tables])
        groups = [group for table in tables for group in table.groups or [""] * len(table)]
        known = np.flatnonzero(np.isfinite(ok).any(axis=1))
        embedded, measured = self.read([queries[row] for row in known])
        trained, _ = train(embedded, measured, ok[known], train_.models, [groups[row] for row in known])
        return EncoderFitted(trained, self.read)

    def read(self, queries: Sequence[Query]) -> tuple[Floats, Floats]:
        """Embeddings and features."""
        for query in queries:
            if query not in self._features:
                self._features[query] = features(query).astype(np.float64)
        embedded = self._embed([query.ask for query in queries]).astype(np.float64)
        return embedded, np.stack([self._features[query] for query in queries])


class EncoderFitted:
    """Rates queries for the models of the training table."""

    def __init__(self, trained: Trained, read: Callable[[Sequence[Query]], tuple[Floats, Floats]]) -> None:
        self.trained = trained
        self._read = read

    def predict(self, queries: Sequence[Query]) -> Floats:
        return self._rated(queries)[0]

    def deviation(self, queries: Sequence[Query]) -> Floats:
        return self._rated(queries)[1]

    def _rated(self, queries: Sequence[Query]) -> tuple[Floats, Floats]:
        heads = [self.trained.heads[model] for model in self.trained.models]
        return rated(*self.trained.vectors(*self._read(queries)), heads)


def columns_of(table: Dataset, models: Sequence[str]) -> Floats:
    """Outcomes of these models, nan where the table has none."""
    found = np.full((len(table), len(models)), np.nan)
    for at, model in enumerate(models):
        if model in table.models:
            found[:, at] = table.ok[:, table.models.index(model)]
    return found
