"""A report as data (for --json) and as tables (for people)."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.bench.ceilings import Ceilings
from penstock.bench.machine import machine, versions
from penstock.bench.statistics import Run, median_run

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def report(
    *,
    kind: str,
    command: Sequence[str],
    subject: dict[str, Any],
    runs: Sequence[Run],
    ceilings: Ceilings | None,
) -> dict[str, Any]:
    """Everything one needs to believe a figure, or to measure it again. Times are in seconds."""
    return {
        "kind": kind,
        "measured_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(command),
        "machine": machine(),
        "versions": versions(),
        "subject": subject,
        "ceilings": asdict(ceilings) if ceilings else None,
        "runs": [run.as_dict() for run in runs],
        "medians": [run.as_dict() for run in medians(runs)],
        "continuous_over_static": ratios(runs),
    }


def medians(runs: Sequence[Run]) -> list[Run]:
    """For each workload and mode, in the order they came, the median run."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.workload, run.mode), []).append(run)
    return [median_run(group) for group in groups.values()]


def ratios(runs: Sequence[Run]) -> dict[str, float]:
    """Output tokens/s of continuous over static batching, for each workload that ran both."""
    rates = {(run.workload, run.mode): run.output_tokens_per_second for run in medians(runs)}
    return {
        workload: rate / rates[workload, "static"]
        for (workload, mode), rate in rates.items()
        if mode == "continuous" and rates.get((workload, "static"))
    }


def tables(content: dict[str, Any], runs: Sequence[Run]) -> Iterator[RenderableType]:
    chosen = medians(runs)
    repeats = {(run.workload, run.mode): 0 for run in runs}
    for run in runs:
        repeats[run.workload, run.mode] += 1
    yield _throughput(chosen, repeats)
    yield _latency(chosen)
    if any(run.engine for run in chosen):
        yield _engine(chosen)
    for workload, ratio in content["continuous_over_static"].items():
        yield f"{workload}: continuous batching gives [bold]{ratio:.2f}x[/bold] the tokens/s of static."
    yield from _surroundings(content, chosen)


def _throughput(runs: Sequence[Run], repeats: dict[tuple[str, str], int]) -> Table:
    columns = ("requests", "errors", "wall s", "in tok/s", "out tok/s", "req/s")
    most = max(repeats.values(), default=1)
    table = _table("Throughput" if most == 1 else f"Throughput, median of {most}", *columns)
    for run in runs:
        table.add_row(
            run.workload,
            run.mode,
            str(run.requests),
            f"[red]{run.errors}[/red]" if run.errors else "0",
            f"{run.wall_seconds:.2f}" if run.wall_seconds < 100 else f"{run.wall_seconds:.0f}",
            f"{run.input_tokens_per_second:.1f}",
            f"[bold]{run.output_tokens_per_second:.1f}[/bold]",
            f"{run.requests_per_second:.2f}",
        )
    return table


def _latency(runs: Sequence[Run]) -> Table:
    table = _table("Latency, ms", "", "mean", "p50", "p95", "p99")
    for run in runs:
        metrics = {"TTFT": run.ttft, "ITL": run.itl, "TPOT": run.tpot, "end to end": run.e2e}
        for name, values in metrics.items():
            first = name == "TTFT"
            numbers = (values.mean, values.p50, values.p95, values.p99)
            table.add_row(
                run.workload if first else "",
                run.mode if first else "",
                name,
                *(_milliseconds(number) for number in numbers),
                end_section=name == "end to end",
            )
    return table


def _engine(runs: Sequence[Run]) -> Table:
    table = _table("Engine", "steps", "tok/step", "KV waste", "prefix hits", "preempted")
    for run in runs:
        if run.engine:
            table.add_row(
                run.workload,
                run.mode,
                str(run.engine["steps"]),
                f"{run.engine['tokens_per_step']:.1f}",
                f"{run.engine['kv_waste']:.2%}",
                f"{run.engine['prefix_hit_rate']:.1%}",
                str(run.engine["preemptions"]),
            )
    return table


def _surroundings(content: dict[str, Any], runs: Sequence[Run]) -> Iterator[str]:
    for run in runs:
        if run.first_error:
            yield f"[red]{run.workload}, first error: {run.first_error}[/red]"
        if run.short:
            yield f"{run.workload}: {run.short} answers had another number of tokens than was asked for."
    if ceilings := content["ceilings"]:
        yield (
            f"Ceilings of {ceilings['device']}, {ceilings['threads']} threads: "
            f"memory read {ceilings['memory_read_gb_per_second']:.1f} GB/s, "
            f"fp32 matmul {ceilings['fp32_gflop_per_second']:.0f} GFLOP/s."
        )
        yield from _reached(content, runs)
    host, version = content["machine"], content["versions"]["penstock"]
    yield f"{host['processor']}, {host['cores']} cores, {host['memory_gib']} GiB; penstock {version}"


def _reached(content: dict[str, Any], runs: Sequence[Run]) -> Iterator[str]:
    """How near the engine came to the memory ceiling: every step reads each matrix once.

    `weight_bytes` leaves the embedding out: of that table a step reads one row for each token.
    """
    weights = content["subject"].get("weight_bytes")
    ceiling = content["ceilings"]["memory_read_gb_per_second"]
    for run in runs:
        if weights and run.engine:
            reached = weights * run.engine["steps"] / run.wall_seconds / 1e9
            share = reached / ceiling
            yield f"{run.workload} {run.mode}: weights read at {reached:.1f} GB/s, {share:.0%} of ceiling."


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f}" if seconds >= 0.1 else f"{seconds * 1000:.1f}"


def _table(title: str, *columns: str) -> Table:
    """Each row begins with the workload and the mode."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold", collapse_padding=True
    )
    for column in ("workload", "mode"):
        table.add_column(column, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    return table
