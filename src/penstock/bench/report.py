"""A report as data (for --json), and its tables on a terminal."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from penstock.bench.ceilings import Ceilings
from penstock.bench.figures import grouped
from penstock.bench.items import items
from penstock.bench.machine import machine, versions
from penstock.bench.result import SCHEMA
from penstock.bench.statistics import Run, median_run
from penstock.bench.sweep import saturation
from penstock.bench.tables import Cell, Note, Table, Tone

if TYPE_CHECKING:
    from rich.console import RenderableType

STYLES: dict[Tone, str] = {"": "", "strong": "bold", "good": "green", "bad": "red"}


def report(
    *,
    kind: str,
    command: Sequence[str],
    subject: dict[str, Any],
    runs: Sequence[Run],
    ceilings: Ceilings | None,
    price_per_hour: float | None = None,
) -> dict[str, Any]:
    """Everything one needs to believe a figure, or to measure it again. Times are in seconds."""
    content = {
        **frame(kind, command, subject, ceilings),
        "price_per_hour": price_per_hour,
        "runs": [run.as_dict() for run in runs],
        # Single requests are in `runs`; twice would be half of the file.
        "medians": [replace(run, samples=[]).as_dict() for run in medians(runs)],
        "continuous_over_static": ratios(runs),
    }
    return content | {"saturation": saturations(runs)} if kind == "sweep" else content


def frame(
    kind: str, command: Sequence[str], subject: dict[str, Any], ceilings: Ceilings | None
) -> dict[str, Any]:
    """What every kind of result begins with."""
    return {
        "schema": SCHEMA,
        "kind": kind,
        "measured_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(command),
        "machine": machine(),
        "versions": versions(),
        "subject": subject,
        "ceilings": asdict(ceilings) if ceilings else None,
    }


def medians(runs: Sequence[Run]) -> list[Run]:
    """For each workload, mode and load, in the order they came, the median run."""
    return [median_run(group) for group in grouped(runs)]


def saturations(runs: Sequence[Run]) -> dict[str, int | None]:
    """For each workload of a sweep, the place of its saturation point in the medians; None: not reached."""
    chosen = medians(runs)
    found: dict[str, int | None] = {}
    for workload in dict.fromkeys(run.workload for run in chosen):
        places = [place for place, run in enumerate(chosen) if run.workload == workload]
        point = saturation([chosen[place] for place in places])
        found[workload] = None if point is None else places[point]
    return found


def ratios(runs: Sequence[Run]) -> dict[str, float]:
    """Output tokens/s of continuous over static batching, for each workload that ran both."""
    rates = {(run.workload, run.mode): run.output_tokens_per_second for run in medians(runs)}
    return {
        workload: rate / rates[workload, "static"]
        for (workload, mode), rate in rates.items()
        if mode == "continuous" and rates.get((workload, "static"))
    }


def tables(content: dict[str, Any]) -> Iterator[RenderableType]:
    """What a result shows on a terminal, whatever its kind."""
    from rich.text import Text

    for item in items(content):
        if isinstance(item, Note):
            yield Text(item.text, style=STYLES[item.tone])
        else:
            yield _rich(item)


def _rich(table: Table) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

    # Narrow padding: the tables fit a terminal of 80 columns.
    shown = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for number, name in enumerate(table.head):
        shown.add_column(name, justify="left" if number < table.texts else "right", no_wrap=True)
    for row in table.rows:
        cells = [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
        shown.add_row(*(Text(cell.text, style=STYLES[cell.tone]) for cell in cells))
    notes = [Text(table.note, style="dim")] if table.note else []
    return Group(Text(table.title, style="bold"), shown, *notes, "")
