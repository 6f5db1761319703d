"""A file of measured outcomes as one table: what was asked, and how well each model answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.aio.evaluate.files import read_raw
from penstock.aio.evaluate.keys import question_key
from penstock.aio.evaluate.models import canonical, cost_of, ladder_of
from penstock.aio.query import Query, query_of_text
from penstock.errors import ConfigError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Dataset:
    """Questions (rows) and models (columns, cheapest first)."""

    name: str
    queries: list[Query]
    texts: list[str]
    groups: list[str] | None  # the subject of each question, where the file names one
    models: tuple[str, ...]
    ok: Floats  # [n, m] in [0, 1]: how good the answer was; nan where it was not measured
    cost: Floats  # [m] of an answer, in any unit
    keys: list[str]  # the same for the same question in any file
    answers: dict[str, list[str]] = field(default_factory=dict)  # by model, where the file has them
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self, chosen: Sequence[int] | NDArray[np.intp]) -> Dataset:
        """The same table with these rows only."""
        at = [int(row) for row in chosen]
        return replace(
            self,
            queries=[self.queries[row] for row in at],
            texts=[self.texts[row] for row in at],
            groups=None if self.groups is None else [self.groups[row] for row in at],
            ok=self.ok[at],
            keys=[self.keys[row] for row in at],
            answers={model: [said[row] for row in at] for model, said in self.answers.items()},
        )

    def only(self, models: Sequence[int]) -> Dataset:
        """The same rows with these models only."""
        names = tuple(self.models[column] for column in models)
        return replace(
            self,
            models=names,
            ok=self.ok[:, list(models)],
            cost=self.cost[list(models)],
            answers={name: self.answers[name] for name in names if name in self.answers},
        )

    def without(self, keys: frozenset[str]) -> Dataset:
        """The rows whose question is none of these."""
        return self.rows([row for row, key in enumerate(self.keys) if key not in keys])

    def ladder(self) -> Dataset:
        """The tiers of this file, and the rows on which every tier was measured."""
        mean = [_mean(self.ok[:, column]) for column in range(len(self.models))]
        tiers = self.only(ladder_of(self.models, [float(cost) for cost in self.cost], mean))
        return tiers.rows(np.flatnonzero(np.isfinite(tiers.ok).all(axis=1)))


def read_dataset(path: str | Path) -> Dataset:
    """Read a CSV (also .gz) or JSONL file of outcomes; what a column is, its name and values say."""
    raw = read_raw(Path(path))
    names = _names(list(raw.outcomes))
    said = {name: raw.costs.get(column) for name, column in names.items()}
    cost = {name: cost if cost is not None else cost_of(name) for name, cost in said.items()}
    ok = {name: np.array(raw.outcomes[column], dtype=np.float64) for name, column in names.items()}
    warnings = []
    unknown = [name for name, value in cost.items() if value is None]
    if unknown:
        order = sorted(names, key=lambda name: _mean(ok[name]))
        prices = {name: 2.0**step for step, name in enumerate(order)}
        shown = ", ".join(unknown[:4])
        warnings.append(f"No price is known for {shown}; models are ordered by quality, each twice the last.")
    else:
        prices = {name: float(value) for name, value in cost.items() if value is not None}
        order = sorted(names, key=lambda name: (prices[name], _mean(ok[name])))
    texts = raw.texts
    return Dataset(
        name=raw.name,
        queries=[query_of_text(text) for text in texts],
        texts=texts,
        groups=raw.groups,
        models=tuple(order),
        ok=np.stack([ok[name] for name in order], axis=1),
        cost=np.array([prices[name] for name in order], dtype=np.float64),
        keys=[question_key(stem) for stem in raw.stems],
        answers={name: raw.answers[column] for name, column in names.items() if column in raw.answers},
        warnings=tuple(warnings),
    )


def priced(data: Dataset, prices: dict[str, float]) -> Dataset:
    """The same table with these prices, models in their new order."""
    for name in prices:
        if name not in data.models:
            raise ConfigError(f"{data.name} has no model {name!r}; it has {', '.join(data.models)}.")
    cost = np.array([prices.get(name, float(data.cost[at])) for at, name in enumerate(data.models)])
    order = np.argsort(cost, kind="stable")
    return replace(data, cost=cost).only([int(column) for column in order])


def _names(columns: Sequence[str]) -> dict[str, str]:
    """Canonical names to columns; two columns of one canonical name keep their own."""
    short = [canonical(column) for column in columns]
    return {
        name if short.count(name) == 1 else column: column
        for name, column in zip(short, columns, strict=True)
    }


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else 0.0
