"""Small tables of outcomes with known answers."""

from __future__ import annotations

import numpy as np

from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.keys import question_key
from penstock.aio.query import query_of_text


def made(
    texts: list[str],
    ok: np.ndarray,
    *,
    cost: tuple[float, ...] = (1.0, 10.0),
    groups: list[str] | None = None,
    answers: dict[str, list[str]] | None = None,
) -> Dataset:
    models = tuple(f"model-{at}" for at in range(len(cost)))
    return Dataset(
        name="made",
        queries=[query_of_text(text) for text in texts],
        texts=texts,
        groups=groups,
        models=models,
        ok=np.asarray(ok, dtype=np.float64),
        cost=np.array(cost),
        keys=[question_key(text) for text in texts],
        answers=answers or {},
    )


def hard_and_easy(rows: int = 200, groups: int = 5) -> Dataset:
    """Every fifth question is hard, and says so: only the expert answers it."""
    hard = np.arange(rows) % 5 == 0
    texts = [f"{'A hard' if hard[row] else 'An easy'} question with the number {row}" for row in range(rows)]
    ok = np.stack([~hard, np.ones(rows, dtype=bool)], axis=1).astype(np.float64)
    ok[1, 1] = 0.0  # the expert errs once, or there would be one class
    return made(texts, ok, groups=[f"subject {row // 5 % groups}" for row in range(rows)])
