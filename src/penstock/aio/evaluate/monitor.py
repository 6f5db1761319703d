"""How well the quality monitor's judge tells whether the low tier was right, without being told the truth."""

from __future__ import annotations

import numpy as np

from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.folds import by_question
from penstock.aio.evaluate.intervals import Figure, figure
from penstock.aio.evaluate.metrics import auc
from penstock.aio.judges import judge


def monitor_auc(data: Dataset, folds: int, seed: int) -> Figure | None:
    """AUC of the judge's score for "the cheapest tier was right", over random parts of the file.

    None where the file does not hold whole answers of the cheapest and the dearest model. The judge is not
    trained on anything: the parts are there for the interval alone.
    """
    low, expert = data.models[0], data.models[-1]
    if low not in data.answers or expert not in data.answers:
        return None
    said = zip(data.texts, data.answers[low], data.answers[expert], strict=True)
    scores = np.array([judge(question, first, second).score for question, first, second in said])
    right = data.ok[:, 0] >= 0.5
    fold = by_question(data, folds, seed)
    parts = range(int(fold.max()) + 1)
    return figure([auc(scores[fold == part], right[fold == part]) for part in parts], len(parts))
