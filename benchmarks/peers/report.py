"""What was measured: as JSON, as tables, as the section of RESULTS.md. Pure, but for the last function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from penstock.bench.statistics import Run
from penstock.bench.workloads import DESCRIPTIONS

from .figures import MB, MS, RATE, SECONDS, Comparison, Measured, Spread, Unit, compare, spread, whole
from .servers import System
from .starts import Start
from .turns import OURS

BEGIN, END = "<!-- benchmarks/peers.py writes from here -->", "<!-- to here -->"
Column = tuple[str, Unit, Callable[[Run], float | None]]
COLUMNS: tuple[Column, ...] = (
    ("output tok/s", RATE, lambda run: run.output_tokens_per_second),
    ("decode tok/s a stream", RATE, lambda run: run.decode_tokens_per_second),
    ("TTFT p50 ms", MS, lambda run: run.ttft.p50),
    ("ITL p50 ms", MS, lambda run: run.itl.p50),
    ("end to end p50 s", SECONDS, lambda run: run.e2e.p50),
    ("wall s", SECONDS, lambda run: run.wall_seconds),
    ("peak MB", MB, lambda run: run.peak_memory_bytes),
)


DISTURBED = 0.1  # cores that others use, on average over a run
METHOD = """\
Medians (range). Each peer's run is followed by one of Penstock, which so has more of them. One server is
asked at a time, the others are stopped; one whose start takes longer than 20 s stays, idle, between its
turns. Prompts are other ones in every run. Memory is of the process tree, shared pages once."""


@dataclass(slots=True)
class Results:
    """Everything that one run of the benchmark has come to so far."""

    about: dict[str, Any]  # date, command, machine
    systems: dict[str, System]
    workloads: list[str]
    repeats: int
    versions: dict[str, str] = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)
    starts: dict[str, list[Start]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # what never started, and why
    failures: list[str] = field(default_factory=list)  # of servers that had started before

    def compared(self) -> list[Comparison]:
        return compare(list(self.systems), self.measured)

    def problems(self) -> list[str]:
        found = [(each.system, each.problem) for each in self.measured]
        return [*self.failures, *(f"{system}: {problem}" for system, problem in found if problem)]

    def disturbance(self) -> str | None:
        """What is to be said of figures that were measured beside other work."""
        shares = [each.others for each in self.measured if each.others > DISTURBED]
        if not shares:
            return None
        return (
            f"In {len(shares)} of {len(self.measured)} runs other work took more than {DISTURBED} cores "
            f"(at most {max(shares):.1f}): these figures are rough."
        )


def as_json(results: Results) -> dict[str, Any]:
    return {
        **results.about,
        "repeats": results.repeats,
        "systems": {
            name: {
                "title": system.title,
                "numbers": system.numbers,
                "version": results.versions.get(name),
                "starts": [asdict(start) for start in results.starts.get(name, ())],
                "not_measured": results.missing.get(name),
            }
            for name, system in results.systems.items()
        },
        "figures": {each.figure.name: _figure_json(each) for each in results.compared()},
        "problems": results.problems(),
        "runs": [
            {"system": each.system, "others": each.others, **each.run.as_dict()} for each in results.measured
        ],
    }


def _figure_json(each: Comparison) -> dict[str, Any]:
    figure = each.figure
    return {
        "title": figure.title,
        "unit": figure.unit.name,
        "better": figure.better,
        "bar": figure.bar,
        "moonshot": figure.moonshot,
        "relative": figure.relative,
        "best_peer": each.best,
        "ratio": each.ratio,
        "met": each.reaches(figure.bar),
        "measured": {name: asdict(value) for name, value in each.values.items()},
    }


# ---------------------------------------------------------------- tables, as rows of text


def bars(results: Results) -> list[list[str]]:
    rows = [["figure", "best peer", "", "Penstock", "ratio", "bar", "moonshot", "met"]]
    for each in results.compared():
        figure = each.figure
        ours, best = each.values.get(OURS), each.best
        met = each.reaches(figure.bar)
        reached = figure.moonshot is not None and each.reaches(figure.moonshot)
        rows.append(
            [
                f"{figure.title}, {figure.unit.name}",
                best or "-",
                _cell(each.values[best], figure.unit) if best else "-",
                _cell(ours, figure.unit),
                "-" if each.ratio is None else f"{each.ratio:.2f}x",
                _wanted(each, figure.bar),
                _wanted(each, figure.moonshot),
                "-" if met is None else "moonshot" if met and reached else "yes" if met else "no",
            ]
        )
    return rows


def _wanted(each: Comparison, value: float | None) -> str:
    if value is None:
        return ""
    sign = ">=" if each.figure.better == "more" else "<="
    return f"{sign} {value:g}x" if each.figure.relative else f"{sign} {value:,g} {each.figure.unit.name}"


def by_workload(results: Results) -> list[list[str]]:
    """One row for each system and workload; a system that was not measured is a row with the reason."""
    rows = [["workload", "system", *(name for name, _, _ in COLUMNS)]]
    for workload in results.workloads:
        for name, system in results.systems.items():
            runs = whole(results.measured, name, workload)
            if runs:
                cells = [_cell(spread(map(of, runs)), unit) for _, unit, of in COLUMNS]
            elif name in results.missing:
                cells = ["not measured, see below"]
            elif workload not in system.workloads:
                cells = ["not asked"]
            elif any((each.system, each.run.workload) == (name, workload) for each in results.measured):
                cells = ["no run with whole answers"]
            else:
                cells = ["not run"]
            rows.append([workload, name, *cells, *[""] * (len(COLUMNS) - len(cells))])
    return rows


def by_system(results: Results) -> list[list[str]]:
    rows = [["system", "what", "computes in", "version", "start s", "idle MB", "idle, share of a core"]]
    for name, system in results.systems.items():
        starts = results.starts.get(name, [])
        if name in results.missing:
            cells = [f"not measured: {results.missing[name]}", "", "", ""]
        else:
            cells = [
                results.versions.get(name, "-"),
                _cell(spread(start.seconds for start in starts), SECONDS),
                _cell(spread(start.idle_bytes for start in starts), MB),
                f"{max(start.idle_cores for start in starts):.1%}" if starts else "-",
            ]
        rows.append([name, system.title, system.numbers, *cells])
    return rows


def _cell(value: Spread | None, unit: Unit) -> str:
    if value is None:
        return "-"
    middle, low, high = (f"{x * unit.scale:,.{unit.digits}f}" for x in (value.median, value.low, value.high))
    return middle if low == high else f"{middle} ({low}-{high})"


def table(rows: Sequence[Sequence[str]], title: str) -> Table:
    shown = Table(title=title, title_justify="left", header_style="bold")
    for name in rows[0]:
        shown.add_column(name, overflow="fold")
    for row in rows[1:]:
        shown.add_row(*row)
    return shown


# ---------------------------------------------------------------- RESULTS.md


def markdown(results: Results) -> str:
    about, host = results.about, results.about["machine"]
    where = f"{host['processor']}, {host['cores']} cores, {host['memory_gib']} GiB, {host['system']}"
    what = f"Python {about['python']}; {about['model']}; {about['date'][:10]}"
    lines = [
        f"`{about['command']}`",
        "",
        f"{where}; {what}. {METHOD}",
        "",
        *_markdown(bars(results)),
        "",
        *_markdown(by_workload(results)),
        "",
        *_markdown(by_system(results)),
        "",
        *(f"- {name}: {DESCRIPTIONS[name]}" for name in results.workloads),
    ]
    if disturbance := results.disturbance():
        lines += ["", f"**{disturbance}**"]
    if problems := results.problems():
        lines += ["", "Runs that count in no median:", "", *(f"- {problem}" for problem in problems)]
    return "\n".join(lines)


def _markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

    return [line(rows[0]), f"|{'---|' * len(rows[0])}", *map(line, rows[1:])]


def with_section(page: str, section: str) -> str:
    """The page with what is between the two marks replaced; without marks they come at the end."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return f"{page.rstrip()}\n\n## Against other engines\n\n{BEGIN}\n{section}\n{END}\n"
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def write_section(path: Path, section: str) -> None:
    path.write_text(with_section(path.read_text(), section))
