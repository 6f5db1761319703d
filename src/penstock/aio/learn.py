"""Training a predictor from files of outcomes: a family for each, and a gate between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.folds import by_question, outside
from penstock.aio.fitting import Ridge, train
from penstock.aio.learned import Family, Gate, LazyText, LearnedPredictor, joint_heads
from penstock.aio.predictor import CalibrationSample
from penstock.aio.text_recipe import TextRecipe
from penstock.errors import ConfigError

Floats = NDArray[np.float64]

LEAST_ROWS: Final = 60  # of a model, with good answers and bad ones among them: fewer do not make a head
SAMPLE_ROWS: Final = 4000
FOLDS: Final = 5
GATE_PENALTY: Final = 300.0


def train_predictor(
    tables: Sequence[Dataset], *, recipe: TextRecipe, seed: int = 0, step: Callable[[str], None]
) -> LearnedPredictor:
    """One predictor for all models of all tables. Raises ConfigError where there is too little to learn."""
    text = recipe.name
    families, read = [], []
    usable = [_usable(table) for table in tables]
    for table in usable:
        step(f"{table.name}: learning from {len(table)} rows")
        embedded, measured = recipe.read(table.queries)
        groups = table.groups or [""] * len(table)
        trained, _ = train(embedded, measured, table.ok, table.models, groups)
        families.append(Family(table.name, trained))
        read.append((embedded, measured))
    # Thresholds come from the file that says most about a whole ladder.
    ladder = max((table.ladder() for table in usable), key=lambda table: table.ok.size)
    step(f"{ladder.name}: predicting what was not learned from")
    return LearnedPredictor(
        name=text,
        version=f"{text}-new",
        families=tuple(families),
        gate=_gate(read),
        heads=joint_heads(families),
        sample=_sample(ladder, recipe, seed),
        trained_keys=frozenset(key for table in tables for key in table.keys),
        trained_groups=frozenset(group for table in tables for group in table.groups or () if group),
        embed=LazyText(text),
    )


def _usable(table: Dataset) -> Dataset:
    """Without models that were hardly measured, or always with one outcome, and rows without any left."""
    enough = [
        at
        for at in range(len(table.models))
        if np.isfinite(table.ok[:, at]).sum() >= LEAST_ROWS
        and np.nanmin(table.ok[:, at]) < np.nanmax(table.ok[:, at])
    ]
    if not enough:
        raise ConfigError(
            f"{table.name} has no model with {LEAST_ROWS} outcomes of both kinds, good and bad; add rows."
        )
    kept = table.only(enough)
    return kept.rows(np.flatnonzero(np.isfinite(kept.ok).any(axis=1)))


def _sample(ladder: Dataset, recipe: TextRecipe, seed: int) -> CalibrationSample:
    """Predictions by models that have not seen the question. They saw fewer others, too, so what is shipped
    is a little better than thresholds from here expect."""
    fold = by_question(ladder, FOLDS, seed)
    quality, deviation = np.zeros(ladder.ok.shape), np.zeros(ladder.ok.shape)
    for at in np.unique(fold):
        rows = np.flatnonzero(fold == at)
        fitted = recipe.fit(ladder.rows(outside(ladder, fold, (int(at),))), ())
        queries = [ladder.queries[row] for row in rows]
        quality[rows], deviation[rows] = fitted.predict(queries), fitted.deviation(queries)
    rows = np.sort(np.random.default_rng(seed).permutation(len(ladder))[:SAMPLE_ROWS])
    found = (quality, ladder.ok, deviation)
    return CalibrationSample(ladder.models, *(array[rows].astype(np.float32) for array in found))


def _gate(read: Sequence[tuple[Floats, Floats]]) -> Gate:
    x = np.vstack([np.hstack(parts) for parts in read])
    mean, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-3)
    member = np.concatenate([np.full(len(embedded), number) for number, (embedded, _) in enumerate(read)])
    each = (member[:, None] == np.arange(len(read))).astype(np.float64)
    if len(read) == 1:
        return Gate(mean, scale, np.zeros((x.shape[1], 1)), np.zeros(1))
    weights, intercepts, _ = Ridge((x - mean) / scale).at(each, GATE_PENALTY)
    return Gate(mean, scale, weights, intercepts)
