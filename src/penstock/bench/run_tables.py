"""The tables of the kinds of results whose runs are `Run`s. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.bench.cost import per_million
from penstock.bench.figures import FIGURES, failed, grouped, load, spread
from penstock.bench.reached import ceiling_items
from penstock.bench.statistics import Distribution, Run, median_run
from penstock.bench.tables import METRICS, Cell, Item, Note, Table, label, milliseconds, number

QUANTILES = ("mean", "p50", "p90", "p95", "p99")


def run_tables(content: dict[str, Any], runs: Sequence[Run]) -> Iterator[Item]:
    """Everything but the machine, for the kinds whose runs are `Run`s."""
    groups = grouped(runs)
    if not groups:
        yield Note("Nothing was measured.", "bad")
        return
    chosen = [median_run(group) for group in groups]
    if content["kind"] == "sweep":
        yield _sweep(content, chosen)
    yield _throughput(groups, chosen)
    yield _outcomes(chosen)
    yield _latency(chosen)
    if any(run.goodput for run in chosen):
        yield _goodput(chosen)
    if max(len(group) for group in groups) > 1 and content["kind"] != "sweep":
        yield _spread(groups)
    if content["price_per_hour"] is not None:
        yield _cost(content["price_per_hour"], chosen)
    if any(run.peak_memory_bytes or run.startup_seconds for run in chosen):
        yield _process(chosen)
    if any(run.engine for run in chosen):
        yield _engine(chosen)
    for workload, ratio in content.get("continuous_over_static", {}).items():
        yield Note(f"{workload}: continuous batching gives {ratio:.2f}x the tokens/s of static.", "strong")
    yield from doubts(runs)
    if content["ceilings"]:
        yield from ceiling_items(content, chosen)


def _throughput(groups: Sequence[Sequence[Run]], runs: Sequence[Run]) -> Table:
    most = max(len(group) for group in groups)
    return Table(
        title="Throughput" if most == 1 else f"Throughput, median of {most}",
        head=("run", "load", "wall s", "in tok/s", "out tok/s", "decode tok/s", "req/s"),
        texts=2,
        rows=[
            (
                label(run),
                load(run),
                number(run.wall_seconds),
                f"{run.input_tokens_per_second:.1f}",
                Cell(f"{run.output_tokens_per_second:.1f}", "strong"),
                "-" if run.decode_tokens_per_second is None else f"{run.decode_tokens_per_second:.1f}",
                f"{run.requests_per_second:.2f}",
            )
            for run in runs
        ],
        note="Of good answers alone. Decode: one answer after its first token, the median over answers.",
    )


def _outcomes(runs: Sequence[Run]) -> Table:
    def bad(count: int) -> Cell:
        return Cell(str(count), "bad" if count else "")

    return Table(
        title="Requests",
        head=("run", "sent", "good", "short", "errors", "timeouts", "unfinished"),
        rows=[
            (
                label(run),
                str(run.requests),
                str(run.completed),
                *(bad(count) for count in (run.short, run.errors, run.timeouts, run.unfinished)),
            )
            for run in runs
        ],
    )


def _latency(runs: Sequence[Run]) -> Table:
    def row(run: Run, metric: str, name: str) -> list[Cell | str]:
        values: Distribution = getattr(run, metric)
        first = label(run) if metric == "ttft" else ""
        return [first, name, *(milliseconds(getattr(values, quantile)) for quantile in QUANTILES)]

    return Table(
        title="Latency, ms",
        head=("run", "", *QUANTILES),
        texts=2,
        rows=[row(run, metric, name) for run in runs for metric, name in METRICS.items()],
    )


def _goodput(runs: Sequence[Run]) -> Table:
    kept = [(run, run.goodput) for run in runs if run.goodput]
    slo = kept[0][1].slo
    limits = ", ".join(f"{METRICS[metric]} {milliseconds(limit)} ms" for metric, limit in slo.items())
    return Table(
        title=f"Goodput: answers within {limits}",
        head=("run", "good", "share", "req/s", "out tok/s"),
        rows=[
            (
                label(run),
                f"{goodput.good} of {run.requests - run.unfinished}",
                f"{goodput.share:.1%}",
                f"{goodput.requests_per_second:.2f}",
                f"{goodput.tokens_per_second:.1f}",
            )
            for run, goodput in kept
        ],
    )


def _spread(groups: Sequence[Sequence[Run]]) -> Table:
    rows: list[Sequence[Cell | str]] = []
    for group in groups:
        if len(group) == 1:
            continue
        first = True
        for figure in FIGURES:
            found = spread(figure, group) if figure.decides else None
            if found is None or figure.of is failed:
                continue
            width = f"±{found.share:.1%}"
            rows.append(
                (
                    label(group[0]) if first else "",
                    figure.label,
                    number(found.median),
                    number(found.min),
                    number(found.max),
                    width,
                )
            )
            first = False
    repeats = max(len(group) for group in groups)
    return Table(
        title=f"Spread over {repeats} repeats, ± half the range",
        head=("run", "figure", "median", "min", "max", "spread"),
        texts=2,
        rows=rows,
    )


def _cost(price: float, runs: Sequence[Run]) -> Table:
    def cell(rate: float) -> str:
        cost = per_million(price, rate)
        if cost is None:
            return "-"
        return f"{cost:,.2f}" if cost >= 1 else f"{cost:.3g}"

    return Table(
        title=f"Cost of 1M tokens at {price:g} an hour",
        head=("run", "of output", "of input and output"),
        rows=[
            (
                label(run),
                cell(run.output_tokens_per_second),
                cell(run.input_tokens_per_second + run.output_tokens_per_second),
            )
            for run in runs
        ],
        note="At this run's load: a machine that waits costs the same and makes fewer tokens.",
    )


def _process(runs: Sequence[Run]) -> Table:
    return Table(
        title="Memory and start-up",
        head=("run", "peak memory MB", "start-up s"),
        rows=[
            (
                label(run),
                "-" if run.peak_memory_bytes is None else f"{run.peak_memory_bytes / 1e6:,.0f}",
                "-" if run.startup_seconds is None else f"{run.startup_seconds:.2f}",
            )
            for run in runs
        ],
    )


def _engine(runs: Sequence[Run]) -> Table:
    return Table(
        title="Engine",
        head=("run", "steps", "tok/step", "KV waste", "prefix hits", "preempted"),
        rows=[
            (
                label(run),
                str(run.engine["steps"]),
                f"{run.engine['tokens_per_step']:.1f}",
                f"{run.engine['kv_waste']:.2%}",
                f"{run.engine['prefix_hit_rate']:.1%}",
                str(run.engine["preemptions"]),
            )
            for run in runs
            if run.engine
        ],
    )


def _sweep(content: dict[str, Any], runs: Sequence[Run]) -> Table:
    """Each load with the growth since the one before it; the saturation points are marked."""
    saturated = set(content["saturation"].values())
    rows: list[Sequence[Cell | str]] = []
    former: Run | None = None
    for index, run in enumerate(runs):
        rate = run.output_tokens_per_second
        before = former.output_tokens_per_second if former and former.workload == run.workload else 0.0
        rows.append(
            (
                Cell(label(run), "strong" if index in saturated else ""),
                Cell(f"{rate:.1f}", "strong"),
                f"{rate / before - 1:+.0%}" if before else "",
                milliseconds(run.ttft.p50),
                milliseconds(run.ttft.p99),
                milliseconds(run.e2e.p99),
                Cell(str(failed(run)), "bad" if failed(run) else ""),
                Cell("saturated", "good") if index in saturated else "",
            )
        )
        former = run
    return Table(
        title="Sweep",
        head=("load", "out tok/s", "growth", "TTFT p50", "TTFT p99", "e2e p99", "failed", ""),
        rows=rows,
        note="Latencies in ms. Saturated: the first load after which output grows by less than 5% "
        "while p99 latency grows.",
    )


def doubts(runs: Sequence[Run], of: str = "") -> Iterator[Note]:
    """Why the figures may not be what they seem; `of` says whose runs these are."""
    for group in grouped(runs):
        name = f"{of}{label(group[0])}"
        for error in dict.fromkeys(run.first_error for run in group if run.first_error):
            yield Note(f"{name}, first error: {error}", "bad")
        short = sum(run.short for run in group)
        if short:
            yield Note(
                f"{name}: {short} answers had another number of tokens than was asked for, in all repeats "
                "together; they are not in the rates and latencies.",
                "bad",
            )
        if any(run.unfinished for run in group):
            yield Note(f"{name}: cut off; the figures are of what had ended until then.", "bad")
        for warning in dict.fromkeys(text for run in group for text in run.warnings):
            yield Note(f"{name}: {warning}", "bad")
