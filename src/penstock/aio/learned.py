"""Predictors that were trained: a text model, and for each family of queries what was learnt from it.

Files of outcomes differ in how questions are put and graded, so one regression for all of them is worse for
each. Every file makes a *family*; a query is rated by the family it looks most like, of those whose models
are asked for. What the heads see is one vector with a block for each family, all zero but the chosen one's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.aio.encoder import load_encoder
from penstock.aio.features import features_of, read
from penstock.aio.fitting import Trained, rated
from penstock.aio.heads import Head
from penstock.aio.predictor import CalibrationSample, Rating
from penstock.aio.query import Query
from penstock.aio.regions import region_of
from penstock.aio.words import load_words
from penstock.errors import ConfigError

Floats = NDArray[np.float64]
Embed = Callable[[Sequence[str]], NDArray[np.float32]]

# Text models by name: what turns texts into vectors.
TEXTS: Final[dict[str, Callable[[], Embed]]] = {
    "light": lambda: load_words().embed,
    "encoder": lambda: load_encoder().embed,
}
QUICK: Final = frozenset({"light"})  # of these: no more than lookups and sums
_UNKNOWN: Final = 1e-4  # variance of a head's weights on families in which its model was not measured


class LazyText:
    """A text model, loaded with the first text: who only looks at a predictor need not have it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._embed: Embed | None = None

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._embed is None:
            self._embed = TEXTS[self._name]()
        return self._embed(texts)


# Models that were not measured on the same questions, and what comes nearest to them where they were not.
STAND_INS: Final = {"Phi-3-mini": "Phi-3.5-mini", "gemini-1.5-pro": "Llama-3.1-405B"}


@dataclass(frozen=True, slots=True)
class Family:
    """Queries of one kind, and what was learnt from them."""

    name: str
    trained: Trained

    def head(self, reference: str) -> Head | None:
        """Of this model, or of what stands in for it here."""
        heads = self.trained.heads
        return heads.get(reference) or heads.get(STAND_INS.get(reference, ""))


@dataclass(frozen=True, slots=True)
class Gate:
    """Which family a query looks like: a score for each, from its embedding and features."""

    mean: Floats  # [width + features]
    scale: Floats
    weights: Floats  # [width + features, families]
    intercepts: Floats  # [families]

    def scores(self, embedded: Floats, measured: Floats) -> Floats:
        """[n, families]"""
        x = (np.hstack([embedded, measured]) - self.mean) / self.scale
        return np.asarray(x @ self.weights + self.intercepts)


@dataclass(frozen=True, slots=True)
class LearnedPredictor:
    """Rates queries. `heads` are over the joint vector; its blocks are [1, vector of the family]."""

    name: str  # of the text model
    version: str
    families: tuple[Family, ...]
    gate: Gate
    heads: Mapping[str, Head]
    sample: CalibrationSample
    trained_keys: frozenset[str]  # questions that must not be used to judge it
    trained_groups: frozenset[str]
    embed: Embed
    # By family and references: heads cut to the family's own vector.
    parts: dict[tuple[int, tuple[str, ...]], list[Head]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def references(self) -> tuple[str, ...]:
        return tuple(self.heads)

    @property
    def quick(self) -> bool:
        return self.name in QUICK

    def rate(self, query: Query, references: Sequence[str]) -> Rating:
        able = self._able(references)
        embedded = self.embed([query.ask]).astype(np.float64)
        reading = read(query)
        measured = features_of(query, reading).astype(np.float64)[None]
        chosen = able[0]
        if len(able) > 1:
            scores = self.gate.scores(embedded, measured)[0]
            chosen = max(able, key=lambda number: float(scores[number]))
        block, doubt = self.families[chosen].trained.vectors(embedded, measured)
        start = sum(_width(family) for family in self.families[:chosen])
        end = start + _width(self.families[chosen])
        quality, deviation = rated(block, doubt, self._parts(chosen, start, end, tuple(references)))
        vector = np.zeros(sum(map(_width, self.families)), np.float32)
        vector[start], vector[start + 1 : end] = 1.0, block[0]
        return Rating(
            tuple(quality[0].tolist()), tuple(deviation[0].tolist()), region_of(query, reading), vector
        )

    def _parts(self, family: int, start: int, end: int, references: tuple[str, ...]) -> list[Head]:
        """Heads over one family's own vector; a ladder asks for the same ones again and again."""
        key = (family, references)
        found = self.parts.get(key)
        if found is None:
            found = self.parts[key] = [_part(self.heads[name], start, end) for name in references]
        return found

    def _able(self, references: Sequence[str]) -> list[int]:
        """Families that can tell of all of these."""
        able = [number for number, family in enumerate(self.families) if all(map(family.head, references))]
        if not able:
            groups = "; ".join(", ".join(family.trained.models) for family in self.families)
            raise ConfigError(
                f"The predictor {self.version} has not seen {', '.join(references)} asked the same; "
                f"these were measured together: {groups}."
            )
        return able

    def refitted(self, heads: Mapping[str, Head], version: str) -> LearnedPredictor:
        """The same with other heads, which see the same vectors."""
        return replace(self, heads={**self.heads, **heads}, version=version, parts={})


def joint_heads(families: Sequence[Family]) -> dict[str, Head]:
    """Every model's head over the joint vector, from its heads in the families that measured it."""
    size = sum(map(_width, families))
    heads: dict[str, Head] = {}
    for name in dict.fromkeys(model for family in families for model in family.trained.models):
        coefficients = np.zeros(size, np.float32)
        covariance = np.eye(size + 1, dtype=np.float32) * _UNKNOWN
        start = 0
        for family in families:
            end = start + _width(family)
            head = family.head(name)
            if head is not None:
                # A family's own head has its intercept last; in its block that comes first.
                order = np.concatenate(([end - start - 1], np.arange(end - start - 1)))
                coefficients[start], coefficients[start + 1 : end] = head.intercept, head.coefficients
                covariance[start:end, start:end] = head.covariance[np.ix_(order, order)]
            start = end
        heads[name] = Head(coefficients, 0.0, covariance)
    return heads


def _width(family: Family) -> int:
    return 2 + len(family.trained.models)  # that it is this family, how hard the query is, each model's part


def _part(head: Head, start: int, end: int) -> Head:
    """A head over one family's own vector."""
    order = np.concatenate((np.arange(start + 1, end), [start]))
    covariance = head.covariance[np.ix_(order, order)].copy()
    covariance[-1, -1] += head.covariance[-1, -1]
    intercept = head.intercept + float(head.coefficients[start])
    return Head(head.coefficients[start + 1 : end], intercept, covariance)
