"""What a predictor answers, and where predictors are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.aio.heads import Head
from penstock.aio.query import Query
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.aio.learned import LearnedPredictor


@dataclass(frozen=True, slots=True)
class Rating:
    """How likely each of some reference models is to answer a query well enough."""

    quality: tuple[float, ...]  # calibrated probabilities, one for each reference asked for
    deviation: tuple[
        float, ...
    ]  # their standard deviations: larger where the query is unlike what was trained on
    region: str
    vector: NDArray[np.float32]  # what the heads see: enough to refit them, too little to read the text from


@dataclass(frozen=True, slots=True)
class CalibrationSample:
    """Predictions for queries that were not trained on, and their outcomes: thresholds come from here."""

    references: tuple[str, ...]  # cheapest first
    quality: NDArray[np.float32]  # [queries, references]
    ok: NDArray[np.float32]  # [queries, references], 0 or 1
    deviation: NDArray[np.float32] | None = None  # of the predictions, where it is known


class Predictor(Protocol):
    """Rates queries. References are named as in the training data; see `references`."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def references(self) -> tuple[str, ...]: ...
    @property
    def sample(self) -> CalibrationSample: ...
    @property
    def heads(self) -> Mapping[str, Head]:
        """By reference."""

    @property
    def quick(self) -> bool:
        """Whether a rating takes well below a millisecond or two: an event loop can bear it."""

    def rate(self, query: Query, references: Sequence[str]) -> Rating: ...
    def refitted(self, heads: Mapping[str, Head], version: str) -> Predictor:
        """The same with other heads, which see the same vectors."""


SHIPPED: Final = ("light", "encoder")


def load_predictor(which: str) -> LearnedPredictor:
    """One that is shipped, by its name, or a file that was trained. Raises ConfigError."""
    from penstock.aio import learned_file  # it needs what stands here

    if which in SHIPPED:
        return learned_file.load(learned_file.SHIPPED / f"{which}.npz")
    path = Path(which).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"There is no predictor {which!r}: it is one of {', '.join(SHIPPED)} or a file that "
            "'penstock route train' has made."
        )
    return learned_file.load(path)
