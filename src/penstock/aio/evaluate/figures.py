"""A report as plain JSON: the figures of the first recipe at the top, everything else below.

`docs/routing-evaluation.md` says what every field means.
"""

from __future__ import annotations

from typing import Any

from penstock.aio.evaluate.intervals import Figure
from penstock.aio.evaluate.metrics import Calibration
from penstock.aio.evaluate.report import Report
from penstock.aio.evaluate.shipped import Part, ShippedFigures
from penstock.aio.evaluate.split import Judged
from penstock.aio.evaluate.timing import DecisionTime

_FIGURES = (
    "apgr",
    "cpt50",
    "cpt80",
    "quality",
    "saving",
    "saving_net",
    "saving_at_target",
    "saving_at_target_net",
)
INTERVAL = "95%, Student's t over the folds; repeats are not counted as folds"


def as_json(report: Report, recipe: str, decisions: DecisionTime | None) -> dict[str, Any]:
    """One file's report; `recipe` is the one whose figures stand at the top."""
    data, plan = report.data, report.plan
    first: dict[str, Figure | None] = {}
    for split, judged in (("seen", report.seen), ("unseen", report.unseen)):
        of = judged[recipe] if judged is not None else Judged()
        for name in _FIGURES:
            first[f"{name}_{split}"] = getattr(of, name)
    # Without a subject to leave out the split by question is all there is to say.
    first["saving_net"], first["quality"] = first["saving_net_seen"], first["quality_seen"]
    first.update(_shipped_figures(report.shipped))
    first["monitor_auc"] = report.monitor
    return {
        "file": data.name,
        "rows": len(data),
        "questions": len(set(data.keys)),
        "subjects": None if data.groups is None else len(set(data.groups)),
        "tiers": [
            {"model": model, "cost": float(data.cost[at]), "quality": _round(float(data.ok[:, at].mean()))}
            for at, model in enumerate(data.models)
        ],
        "folds": plan.folds,
        "repeats": plan.repeats,
        "seed": plan.seed,
        "target": plan.target,
        "recipe": recipe,
        **{name: None if found is None else _round(found.mean) for name, found in first.items()},
        "interval": INTERVAL,
        "intervals": {name: _bounds(found) for name, found in first.items() if found is not None},
        "decision_ms": None if decisions is None else _decisions(decisions),
        "seen": {name: _judged(judged) for name, judged in report.seen.items()},
        "unseen": None
        if report.unseen is None
        else {name: _judged(judged) for name, judged in report.unseen.items()},
        "shipped": None if report.shipped is None else _shipped(report.shipped),
        "warnings": list(report.warnings),
    }


def _decisions(found: DecisionTime) -> dict[str, Any]:
    return {"p50": round(found.p50, 3), "p99": round(found.p99, 3), "decisions": found.decisions}


def _shipped_figures(shipped: ShippedFigures | None) -> dict[str, Figure | None]:
    parts = {
        "shipped": shipped.all if shipped else None,
        "shipped_seen": shipped.seen if shipped else None,
        "shipped_unseen": shipped.unseen if shipped else None,
    }
    return {
        f"{name}_{which}": getattr(part, name) if part is not None else None
        for which, part in parts.items()
        for name in ("apgr", "quality", "saving_net")
    }


def _judged(judged: Judged) -> dict[str, Any]:
    return {
        **{name: _figure(getattr(judged, name)) for name in _FIGURES},
        "apgr_pooled": None if judged.apgr_pooled is None else _round(judged.apgr_pooled),
        "tier_shares": [_round(share) for share in judged.tiers],
        "calibration": {model: _calibration(found) for model, found in judged.calibration.items()},
    }


def _shipped(shipped: ShippedFigures) -> dict[str, Any]:
    return {
        "version": shipped.version,
        "rows_trained_on": shipped.trained_on,
        "why_not": shipped.why_not or None,
        "all": _part(shipped.all),
        "seen": _part(shipped.seen),
        "unseen": _part(shipped.unseen),
    }


def _part(part: Part | None) -> dict[str, Any] | None:
    if part is None:
        return None
    return {
        "rows": part.rows,
        **{name: _figure(getattr(part, name)) for name in ("apgr", "quality", "saving", "saving_net")},
        "calibration": {model: _calibration(found) for model, found in part.calibration.items()},
    }


def _calibration(found: Calibration) -> dict[str, Any]:
    return {
        "brier": _round(found.brier),
        "ece": _round(found.ece),
        "bins": [
            {
                "from": part.low,
                "to": part.high,
                "rows": part.rows,
                "predicted": _round(part.predicted),
                "observed": _round(part.observed),
            }
            for part in found.bins
        ],
    }


def _figure(found: Figure | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "mean": _round(found.mean),
        "interval": _bounds(found),
        "folds": [_round(value) for value in found.folds],
    }


def _bounds(found: Figure) -> list[float] | None:
    return None if found.low is None or found.high is None else [_round(found.low), _round(found.high)]


def _round(value: float) -> float:
    return round(value, 5)
