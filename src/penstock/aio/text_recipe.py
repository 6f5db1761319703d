"""The recipes `light` and `encoder`: what a text model makes of a query beside its features, heads on top."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.encoded import KeptEmbeddings
from penstock.aio.features import features
from penstock.aio.fitting import Trained, rated, train
from penstock.aio.query import Query
from penstock.aio.words import load_words

Floats = NDArray[np.float64]
Embed = Callable[[Sequence[str]], NDArray[np.float32]]


class TextRecipe:
    """Trains on the table, and on others where they are given: which helps only if their questions are put
    and graded alike. What was read once is kept, since every fold reads the same."""

    def __init__(self, name: str, embed: Embed) -> None:
        self.name = name
        self._embed = embed
        self._known: dict[Query, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}

    def fit(self, train_: Dataset, also: Sequence[Dataset]) -> TextFitted:
        tables = [train_, *also]
        queries = [query for table in tables for query in table.queries]
        ok = np.vstack([columns_of(table, train_.models) for table in tables])
        groups = [group for table in tables for group in table.groups or [""] * len(table)]
        known = np.flatnonzero(np.isfinite(ok).any(axis=1))
        embedded, measured = self.read([queries[row] for row in known])
        trained, _ = train(embedded, measured, ok[known], train_.models, [groups[row] for row in known])
        return TextFitted(trained, self.read)

    def read(self, queries: Sequence[Query]) -> tuple[Floats, Floats]:
        """Embeddings and features."""
        new = [query for query in dict.fromkeys(queries) if query not in self._known]
        if new:
            embedded = self._embed([query.ask for query in new])
            for query, vector in zip(new, embedded, strict=True):
                self._known[query] = (vector, features(query))
        found = [self._known[query] for query in queries]
        vectors, measured = (np.stack(part).astype(np.float64) for part in zip(*found, strict=True))
        return vectors, measured


class TextFitted:
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


def light() -> TextRecipe:
    return TextRecipe("light", load_words().embed)


def encoder() -> TextRecipe:
    return TextRecipe("encoder", KeptEmbeddings().embed)


# By the name of the text model.
RECIPES: Final[dict[str, Callable[[], TextRecipe]]] = {"light": light, "encoder": encoder}


def columns_of(table: Dataset, models: Sequence[str]) -> Floats:
    """Outcomes of these models, nan where the table has none."""
    found = np.full((len(table), len(models)), np.nan)
    for at, model in enumerate(models):
        if model in table.models:
            found[:, at] = table.ok[:, table.models.index(model)]
    return found
