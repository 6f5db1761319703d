"""What a trained predictor leans on: its log-odds taken apart, exactly, into what each input adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.aio.features import FEATURES, features
from penstock.aio.learned import LearnedPredictor
from penstock.aio.predictor import Predictor, Rating
from penstock.aio.query import Query


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one input adds to the log-odds of a good answer, for each reference."""

    name: str
    value: float
    log_odds: tuple[float, ...]

    @property
    def strength(self) -> float:
        return max(abs(each) for each in self.log_odds)


def leanings(
    predictor: Predictor, query: Query, references: Sequence[str], rating: Rating
) -> list[Contribution]:
    """Features by name, subjects that the query looks like, the text as a whole, and what is usual; together
    they are the log-odds. Nothing for a predictor that is no such sum."""
    if not isinstance(predictor, LearnedPredictor):
        return []
    start = 0
    for family in predictor.families:
        end = start + 2 + len(family.trained.models)
        if rating.vector[start]:  # the family that has rated it
            break
        start = end
    inputs = family.trained.inputs
    embedded = predictor.embed([query.ask]).astype(np.float64)
    measured = features(query).astype(np.float64)
    x = inputs.of(embedded, measured[None])[0]
    heads = [predictor.heads[name] for name in references]
    slopes = np.array([head.coefficients[start + 1 : end] for head in heads], np.float64).T
    parts = x[:, None] * (family.trained.weights @ slopes)  # [inputs, references]
    usual = family.trained.intercepts @ slopes
    usual += [head.intercept + float(head.coefficients[start]) for head in heads]
    width = embedded.shape[1]
    found = [
        Contribution("usual", 1.0, tuple(usual.tolist())),
        Contribution("text", 1.0, tuple(parts[:width].sum(axis=0).tolist())),
    ]
    named = [*FEATURES, *(f"like {topic}" for topic in inputs.topics)]
    values = [*measured.tolist(), *x[width + len(FEATURES) :].tolist()]
    for name, value, part in zip(named, values, parts[width:].tolist(), strict=True):
        found.append(Contribution(name, value, tuple(part)))
    return found
