"""Training the encoder predictor that is shipped, or a user's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.aio.encoder_predictor import Embed, EncoderPredictor, LazyEncoder
from penstock.aio.encoder_recipe import EncoderRecipe, columns_of
from penstock.aio.encoder_training import rated, train
from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.predictor import CalibrationSample
from penstock.errors import ConfigError

LEAST_ROWS = 60  # of a model: fewer do not make a head
SAMPLE_ROWS = 2000


def train_encoder(
    tables: Sequence[Dataset], *, embed: Embed | None = None, seed: int = 0
) -> EncoderPredictor:
    """One predictor for all models of all tables; every question counts once for each table it stands in."""
    cost = {model: float(table.cost[at]) for table in tables for at, model in enumerate(table.models)}
    models = tuple(sorted(cost, key=lambda model: (cost[model], model)))
    ok = np.vstack([columns_of(table, models) for table in tables])
    # Sampling noise aside a model needs both outcomes: with one class there is nothing to fit.
    enough = [
        at
        for at in range(len(models))
        if np.isfinite(ok[:, at]).sum() >= LEAST_ROWS and np.nanmin(ok[:, at]) < np.nanmax(ok[:, at])
    ]
    if not enough:
        raise ConfigError(f"No model has {LEAST_ROWS} outcomes of both kinds, good and bad; add rows.")
    kept = tuple(models[at] for at in enough)
    ok = ok[:, enough]
    rows = np.flatnonzero(np.isfinite(ok).any(axis=1))
    queries = [query for table in tables for query in table.queries]
    groups = [group for table in tables for group in table.groups or [""] * len(table)]
    embedded, measured = EncoderRecipe(embed).read([queries[row] for row in rows])
    trained, left_out = train(embedded, measured, ok[rows], kept, [groups[row] for row in rows])
    chosen = np.random.default_rng(seed).permutation(len(rows))[:SAMPLE_ROWS]
    _, doubt = trained.vectors(embedded[chosen], measured[chosen])
    quality, deviation = rated(left_out[chosen], doubt, [trained.heads[model] for model in kept])
    # Where a model was not asked, what is expected of it stands in.
    outcomes = np.where(np.isfinite(ok[rows][chosen]), ok[rows][chosen], quality)
    return EncoderPredictor(
        trained,
        CalibrationSample(
            kept, quality.astype(np.float32), outcomes.astype(np.float32), deviation.astype(np.float32)
        ),
        frozenset(key for table in tables for key in table.keys),
        frozenset(group for group in groups if group),
        "encoder-new",
        embed or LazyEncoder(),
    )
