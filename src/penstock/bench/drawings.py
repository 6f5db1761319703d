"""Which plots a result has, by its kind. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.bench.compare import comparisons_of
from penstock.bench.embedding import EmbedRun
from penstock.bench.figures import Spread, grouped
from penstock.bench.plots import Axis, Bar, Plot, Series, Span, axis, bars, lines, spans
from penstock.bench.result import runs_of
from penstock.bench.statistics import Run, median_run
from penstock.bench.tables import METRICS, label, number

MOST_CURVES = 6  # as many as can be told apart
MOST_SPANS = 400  # rows of a timeline that can still be seen
SHARE = Axis(label="% at or below", low=0, high=100)


def drawings(content: dict[str, Any]) -> list[Plot]:
    return BUILDERS[content["kind"]](content)


def _run_plots(content: dict[str, Any]) -> list[Plot]:
    chosen = [median_run(group) for group in grouped(runs_of(content))]
    return [*_curves(chosen), *(plot for run in chosen if (plot := _timeline(run)))]


def _sweep_plots(content: dict[str, Any]) -> list[Plot]:
    chosen = [median_run(group) for group in grouped(runs_of(content))]
    workloads = list(dict.fromkeys(run.workload for run in chosen))
    of = {name: [run for run in chosen if run.workload == name] for name in workloads}
    clients = all(run.concurrency is not None for run in chosen)
    offered = "clients" if clients else "requests/s offered"

    def at(run: Run) -> float:
        return float(run.concurrency or 0) if clients else run.rate or 0.0

    saturated = [chosen[place] for place in content["saturation"].values() if place is not None]
    x = axis(offered, [at(run) for run in chosen], may_log=True)
    rates = [run.output_tokens_per_second for run in chosen]
    grown = [
        Series(name, [(at(run), run.output_tokens_per_second) for run in runs], marks=True)
        for name, runs in of.items()
    ]
    return [
        lines(
            "Throughput against load",
            "Output tokens a second of good answers at each load.",
            x,
            axis("output tok/s", rates),
            grown,
            limits=[(at(run), f"{run.workload} saturated") for run in saturated],
        ),
        *(_latency_against(of, rates, metric) for metric in ("ttft", "e2e")),
        *_curves(chosen),
    ]


def _latency_against(of: dict[str, list[Run]], rates: Sequence[float], metric: str) -> Plot:
    """What throughput costs in latency: the nearer to the lower right, the better."""
    series = []
    for name, runs in of.items():
        for quantile in ("p50", "p99"):
            points = [
                (run.output_tokens_per_second, seconds * 1000)
                for run in runs
                if (seconds := getattr(getattr(run, metric), quantile)) is not None
            ]
            series.append(Series(f"{name} {quantile}" if len(of) > 1 else quantile, points, marks=True))
    heights = [height for one in series for _, height in one.points]
    return lines(
        f"{_capital(metric)} against throughput",
        "Each dot is a load. Lower and further right is better.",
        axis("output tok/s", rates),
        axis(f"{METRICS[metric]}, ms", heights, may_log=True),
        series,
    )


def _curves(runs: Sequence[Run]) -> list[Plot]:
    """How many requests were at most so slow: the nearer to the upper left, the better."""
    plots = []
    for metric in ("ttft", "itl", "e2e"):
        series = [
            Series(label(run), [(seconds * 1000, float(share)) for share, seconds in enumerate(curve)])
            for run in runs[:MOST_CURVES]
            if (curve := getattr(run, metric).curve)
        ]
        if not series:
            continue
        slo = next((run.goodput.slo for run in runs if run.goodput), {})
        limits = [(slo[metric] * 1000, "SLO")] if metric in slo else []
        what = "gaps between tokens" if metric == "itl" else "answers"
        left_out = f" The first {MOST_CURVES} of {len(runs)} runs." if len(runs) > MOST_CURVES else ""
        values = [millis for one in series for millis, _ in one.points]
        plots.append(
            lines(
                f"{_capital(metric)}: distribution",
                f"Share of {what} that took at most so long; further left is better.{left_out}",
                axis("ms", values, may_log=True),
                SHARE,
                series,
                limits=limits,
            )
        )
    return plots


def _capital(metric: str) -> str:
    name = METRICS[metric]
    return name[0].upper() + name[1:]


def _timeline(run: Run) -> Plot | None:
    shown = [sample for sample in run.samples if sample.e2e is not None][:MOST_SPANS]
    if not shown:
        return None
    of = f" The first {MOST_SPANS} of {len(run.samples)}." if len(run.samples) > MOST_SPANS else ""
    return spans(
        f"{label(run)}: requests over time",
        f"Thin: sent, waiting for the first token. Thick: tokens come. Red: no good answer.{of}",
        [
            Span(
                sample.sent,
                None if sample.ttft is None else sample.sent + sample.ttft,
                sample.sent + (sample.e2e or 0.0),
                sample.outcome == "good",
            )
            for sample in shown
        ],
    )


def _compare_plots(content: dict[str, Any]) -> list[Plot]:
    names = content["subject"]["names"]
    plots = []
    for one in comparisons_of(content):
        if not one.a.median and not one.b.median:
            continue
        ratio = "" if one.ratio is None else f"B is {one.ratio:.2f}x A. "
        known = {True: "Beyond the spread.", False: "Within the spread.", None: "One run: spread not known."}
        plots.append(
            bars(
                f"{one.run}: {one.label}",
                ratio + known[one.beyond_spread],
                [
                    _bar(f"{side}: {name}", found, one.better == side and one.beyond_spread is not False)
                    for side, name, found in zip("AB", names, (one.a, one.b), strict=True)
                ],
            )
        )
    return plots


def _embed_plots(content: dict[str, Any]) -> list[Plot]:
    runs = msgspec.convert(content["runs"], list[EmbedRun])
    fastest = max((run.texts / run.median for run in runs), default=0.0)
    drawn = [
        Bar(
            run.mode,
            rate := run.texts / run.median,
            run.texts / max(run.seconds),
            run.texts / min(run.seconds),
            number(rate),
            rate == fastest,
        )
        for run in runs
    ]
    note = "The median of the repeats, and their range. More is better."
    return [bars("Texts a second", note, drawn)] if drawn else []


def _quality_plots(content: dict[str, Any]) -> list[Plot]:
    runs, found = content["runs"], content["quality"]
    if not runs:
        return []
    drawn = [_perplexity(run["precision"], run["perplexity"]) for run in runs]
    note = "Less is better."
    if found and found["low"] is not None:
        reference = found["reference_perplexity"]
        low, high = (reference * (1 + found[bound]) for bound in ("low", "high"))
        # Both read the same pieces: the interval is of their difference, so it stands at one of them.
        drawn[0] = _perplexity(runs[0]["precision"], found["perplexity"], low, high)
        drawn[1] = _perplexity(runs[1]["precision"], reference)
        note = f"Less is better. The range is the 95% interval of the difference from {drawn[1].name}."
    return [bars("Perplexity", note, drawn)]


def _perplexity(name: str, value: float, low: float | None = None, high: float | None = None) -> Bar:
    return Bar(name, value, value if low is None else low, value if high is None else high, number(value))


def _bar(name: str, found: Spread, best: bool) -> Bar:
    return Bar(name, found.median, found.min, found.max, number(found.median), best)


BUILDERS: dict[str, Callable[[dict[str, Any]], list[Plot]]] = {
    "offline": _run_plots,
    "serve": _run_plots,
    "sweep": _sweep_plots,
    "compare": _compare_plots,
    "embed": _embed_plots,
    "quality": _quality_plots,
}
