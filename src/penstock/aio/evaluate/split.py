"""One router on one kind of split: every figure for it, with intervals over the folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock.aio.evaluate.cross import Crossed, Deal, Rate, cross
from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.folds import Ints
from penstock.aio.evaluate.intervals import Figure, figure
from penstock.aio.evaluate.metrics import Calibration, Curve, calibration, curve
from penstock.aio.evaluate.saving import Saving, at_target, mixture, routed

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Judged:
    """None where a figure has no meaning: APGR of more than two tiers, savings of fewer than three folds."""

    apgr: Figure | None = None
    apgr_pooled: float | None = None  # of all rows at once, each rated by the model that did not see it
    cpt50: Figure | None = None
    cpt80: Figure | None = None
    quality: Figure | None = None  # share of the expert's, with the threshold from training rows
    saving: Figure | None = None  # gross
    saving_net: Figure | None = None
    saving_at_target: Figure | None = None  # where the curve crosses the target
    saving_at_target_net: Figure | None = None
    tiers: tuple[float, ...] = ()  # share of queries that each tier got
    calibration: dict[str, Calibration] = field(default_factory=dict)  # by model


def judge(
    data: Dataset,
    folds: Sequence[Ints],
    rate: Rate,
    deal: Deal,
    *,
    target: float,
    classifier: float,
    step: Callable[[], None],
) -> Judged:
    """`folds` has one dealing of rows for each repeat; `classifier` is what a decision takes, in seconds."""
    crossed = [cross(data, fold, rate, deal, step) for fold in folds]
    parts = [(run, at) for run in crossed for at in range(run.folds)]
    count = min(run.folds for run in crossed)
    curves = [_curve(run.outer, data, run.judged(at)) for run, at in parts] if len(data.models) == 2 else []
    crossings = [
        at_target(run.outer[run.judged(at)], data.rows(run.judged(at)), target, classifier)
        for run, at in parts
    ]
    savings = [_routed(data, run, at, target, classifier) for run, at in parts if len(run.known(at))]
    return Judged(
        apgr=figure([line.apgr for line in curves], count),
        apgr_pooled=_pooled(data, crossed),
        cpt50=figure([line.cpt(0.5) for line in curves], count),
        cpt80=figure([line.cpt(0.8) for line in curves], count),
        quality=figure([part.quality for part in savings], count),
        saving=figure([part.gross for part in savings], count),
        saving_net=figure([part.net for part in savings], count),
        saving_at_target=figure([part.gross for part in crossings], count),
        saving_at_target_net=figure([part.net for part in crossings], count),
        tiers=_mean_shares(savings),
        calibration={
            model: calibration(
                np.concatenate([run.outer[:, column] for run in crossed]),
                np.concatenate([data.ok[:, column] for _ in crossed]),
            )
            for column, model in enumerate(data.models)
        },
    )


def at_random(data: Dataset, folds: Sequence[Ints], *, target: float) -> Judged:
    """The random mixture: no router. Its APGR is one half by definition, and so are its thresholds."""
    parts = [(fold, at) for fold in folds for at in range(int(fold.max()) + 1)]
    count = min(int(fold.max()) + 1 for fold in folds)
    mixes = [
        mixture(data.ok[np.flatnonzero(fold != at)], data.rows(np.flatnonzero(fold == at)), target)
        for fold, at in parts
    ]
    exact = [
        mixture(data.ok[rows], data.rows(rows), target)
        for rows in (np.flatnonzero(fold == at) for fold, at in parts)
    ]
    two = len(data.models) == 2
    return Judged(
        apgr=Figure(0.5, None, None, ()) if two else None,
        apgr_pooled=0.5 if two else None,
        cpt50=Figure(0.5, None, None, ()) if two else None,
        cpt80=Figure(0.8, None, None, ()) if two else None,
        quality=figure([mix.quality for mix in mixes], count),
        saving=figure([mix.gross for mix in mixes], count),
        saving_net=figure([mix.net for mix in mixes], count),
        saving_at_target=figure([mix.gross for mix in exact], count),
        saving_at_target_net=figure([mix.net for mix in exact], count),
        tiers=_mean_shares(mixes),
    )


def gain_curve(quality: Floats, ok: Floats) -> Curve:
    """Scores are the gain of asking the expert, which is what its price buys: not that the weak one fails."""
    return curve(quality[:, -1] - quality[:, 0], ok[:, 0], ok[:, -1])


def _curve(quality: Floats, data: Dataset, rows: Ints) -> Curve:
    return gain_curve(quality[rows], data.ok[rows])


def _pooled(data: Dataset, crossed: Sequence[Crossed]) -> float | None:
    if len(data.models) != 2:
        return None
    values = [gain_curve(run.outer, data.ok).apgr for run in crossed]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _routed(data: Dataset, run: Crossed, at: int, target: float, classifier: float) -> Saving:
    known, judged = run.known(at), run.judged(at)
    return routed(
        run.inner[at][known], data.ok[known], run.outer[judged], data.rows(judged), target, classifier
    )


def _mean_shares(savings: Sequence[Saving]) -> tuple[float, ...]:
    if not savings:
        return ()
    return tuple(float(share) for share in np.mean([part.tiers for part in savings], axis=0))
