"""What a decision takes: from a request's body to a tier, on the thread that asks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.aio.choose import choose
from penstock.aio.predictor import Predictor
from penstock.aio.query import query_of

TOKENS = 200
_CHARACTERS = 4 * TOKENS  # of English text


@dataclass(frozen=True, slots=True)
class DecisionTime:
    """In milliseconds."""

    p50: float
    p99: float
    decisions: int


def decision_time(predictor: Predictor, texts: Sequence[str], decisions: int = 400) -> DecisionTime:
    """Every query is about 200 tokens long and asked once, so that nothing is remembered between two."""
    material = " ".join(texts[: 4 * decisions]) or "What is it?"
    while len(material) < _CHARACTERS * 4:
        material += f" {material}"
    references = predictor.references[-4:]
    costs = [(step + 1) / len(references) for step in range(len(references))]
    stride = max(1, (len(material) - _CHARACTERS) // (decisions + 20))
    taken = []
    for at in range(decisions + 20):
        text = f"{at}: {material[at * stride : at * stride + _CHARACTERS]}"
        body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
        started = time.perf_counter()
        rating = predictor.rate(query_of("createChatCompletion", body), references)
        choose(rating.quality, rating.deviation, costs, 0.5)
        taken.append(time.perf_counter() - started)
    steady = 1000.0 * np.array(taken[20:])  # the first ones load and warm what all later ones find ready
    p50, p99 = np.percentile(steady, [50, 99])
    return DecisionTime(float(p50), float(p99), decisions)
