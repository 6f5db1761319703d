"""A predictor whose mind can be read: how hard a question is, it finds written in the question."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from penstock.aio.decision import Price
from penstock.aio.predictor import CalibrationSample, Rating
from penstock.aio.query import Query
from penstock.aio.steps import Step

REFERENCES = ("small", "middle", "large")
SKILL = dict(zip(REFERENCES, (-1.0, 0.5, 2.0), strict=True))
STEPS = [
    Step(tier, reference, Price(request=cost))
    for tier, reference, cost in zip(
        ("simple", "medium", "expert"), REFERENCES, (10_000, 100_000, 1_000_000), strict=True
    )
]


def chance(reference: str, hardness: float) -> float:
    return float(1 / (1 + np.exp(hardness - SKILL[reference])))


class Plain:
    """Reads `hardness 1.5` in a query; calibrated, as its sample shows."""

    name = "plain"
    version = "7"
    references = REFERENCES

    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        hardness = draw.normal(scale=2.0, size=1000)
        quality = np.array([[chance(each, hard) for each in REFERENCES] for hard in hardness], np.float32)
        ok = (draw.random(quality.shape) < quality).astype(np.float32)
        self.sample = CalibrationSample(REFERENCES, quality, ok)

    def rate(self, query: Query, references: Sequence[str]) -> Rating:
        found = re.search(r"-?\d+(\.\d+)?", query.ask)
        hardness = float(found[0]) if found else 0.0
        return Rating(
            tuple(chance(each, hardness) for each in references),
            (0.1,) * len(references),
            "plain",
            np.zeros(1, np.float32),
        )
