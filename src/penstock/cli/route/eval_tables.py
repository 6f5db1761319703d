"""The tables of `penstock route eval` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.table import table

if TYPE_CHECKING:
    from penstock.aio.evaluate.intervals import Figure
    from penstock.aio.evaluate.metrics import Calibration
    from penstock.aio.evaluate.report import Report
    from penstock.aio.evaluate.shipped import Part
    from penstock.aio.evaluate.split import Judged
    from penstock.aio.evaluate.timing import DecisionTime

_SPLITS = {
    "seen": "Subjects seen: random folds, a question on one side only",
    "unseen": "Subjects never seen: whole subjects left out of training",
}


def tables(report: Report, decisions: DecisionTime | None) -> str:
    """All that is known about one file."""
    data, plan = report.data, report.plan
    subjects = "no subjects" if data.groups is None else f"{len(set(data.groups))} subjects"
    repeats = f", {plan.repeats} times" if plan.repeats > 1 else ""
    about = (
        f"{data.name}: {len(data):,} rows, {len(set(data.keys)):,} questions, {subjects}; "
        f"{plan.folds} folds{repeats}, seed {plan.seed}. Intervals: 95%, Student's t over the folds."
    )
    parts = [
        about,
        table(
            ("TIER", "COST", "QUALITY"),
            [
                (model, f"{data.cost[at]:g}", f"{data.ok[:, at].mean():.3f}")
                for at, model in enumerate(data.models)
            ],
            numbers=2,
        ),
    ]
    for split, judged in (("seen", report.seen), ("unseen", report.unseen)):
        if judged is None:
            parts.append("Subjects never seen: the file has no column of at least two subjects to leave out.")
        else:
            parts += [f"{_SPLITS[split]}.", *_judged(report, judged)]
    parts += _calibrations(report)
    parts.append(_shipped(report))
    if report.monitor is not None:
        parts.append(
            f'Quality monitor: AUC for "{data.models[0]} was right", from both answers alone: '
            f"{_figure(report.monitor)}."
        )
    if decisions is not None:
        parts.append(
            f"Decision time, one thread, 200-token queries: p50 {decisions.p50:.2f} ms, "
            f"p99 {decisions.p99:.2f} ms over {decisions.decisions} decisions."
        )
    parts += [f"Note: {warning}" for warning in report.warnings]
    return "\n\n".join(parts)


def _judged(report: Report, judged: dict[str, Judged]) -> list[str]:
    found = []
    if len(report.data.models) == 2:
        found.append(
            table(
                ("ROUTER", "APGR", "POOLED", "CPT50", "CPT80"),
                [
                    (name, _figure(of.apgr), _number(of.apgr_pooled), _percent(of.cpt50), _percent(of.cpt80))
                    for name, of in judged.items()
                ],
                numbers=4,
            )
        )
    heads = ("ROUTER", "QUALITY", "TARGET", "SAVING", "NET", "AT TARGET", "NET", "SHARES OF TIERS")
    rows = [
        (
            name,
            _percent(of.quality),
            f"{100 * report.plan.target:g}%",
            _percent(of.saving),
            _percent(of.saving_net),
            _percent(of.saving_at_target),
            _percent(of.saving_at_target_net),
            " ".join(f"{100 * share:.0f}" for share in of.tiers) or "-",
        )
        for name, of in judged.items()
    ]
    return [*found, table(heads, rows, numbers=7)]


def _calibrations(report: Report) -> list[str]:
    from penstock.aio.evaluate.baselines import BASELINES

    rows = [
        (name, split, model, f"{found.ece:.3f}", f"{found.brier:.3f}", _bins(found))
        for split, judged in (("seen", report.seen), ("unseen", report.unseen or {}))
        for name, of in judged.items()
        if name not in BASELINES
        for model, found in of.calibration.items()
    ]
    heads = ("ROUTER", "SUBJECTS", "TIER", "ECE", "BRIER", "PREDICTED>OBSERVED (ROWS)")
    return ["Calibration of the probabilities, on questions not trained on.", table(heads, rows)]


def _bins(found: Calibration) -> str:
    return "  ".join(f"{part.predicted:.2f}>{part.observed:.2f} ({part.rows})" for part in found.bins)


def _shipped(report: Report) -> str:
    shipped = report.shipped
    if shipped is None:
        return "The shipped model: there is none here."
    if shipped.why_not:
        return f"The shipped model ({shipped.version}): {shipped.why_not}"
    parts = {"all": shipped.all, "subjects seen": shipped.seen, "subjects unseen": shipped.unseen}
    rows = [(name, *_part(part)) for name, part in parts.items() if part is not None]
    heads = ("ROWS", "COUNT", "APGR", "QUALITY", "SAVING", "NET")
    return (
        f"The shipped model ({shipped.version}) as it is, on questions it was not trained on "
        f"({shipped.trained_on:,} rows left out).\n\n{table(heads, rows, numbers=5)}"
    )


def _part(part: Part) -> tuple[str, ...]:
    money = (_percent(part.quality), _percent(part.saving), _percent(part.saving_net))
    return (f"{part.rows:,}", _figure(part.apgr), *money)


def _figure(found: Figure | None) -> str:
    if found is None:
        return "-"
    return f"{found.mean:.3f}" if found.half is None else f"{found.mean:.3f} ±{found.half:.3f}"


def _percent(found: Figure | None) -> str:
    if found is None:
        return "-"
    mean = 100 * found.mean
    return f"{mean:.1f}%" if found.half is None else f"{mean:.1f}% ±{100 * found.half:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
