"""What was measured: as JSON, as tables, as the section of RESULTS.md. Pure, but for the last function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from penstock.bench.ceilings import Ceilings
from penstock.bench.figures import Spread, spread_of
from penstock.bench.reached import in_words
from penstock.bench.statistics import Run
from penstock.bench.workloads import DESCRIPTIONS

from .figures import MB, MEMORY, MS, RATE, SECONDS, Comparison, Measured, Unit, compare, whole
from .servers import System
from .starts import Start

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
STATED = """\
Stated are the best figures known of any peer on two cores with AVX-512 VNNI: of llama.cpp built for that
processor, Q4_0, 16 slots, the decode of W1; of vLLM 0.32 in float32 the others; for memory and start the bar
itself. They stand here because llama.cpp's package on PyPI, which is what is measured here, is built without
AVX-512 and slower than what its users can build; on another machine they say little."""


@dataclass(slots=True)
class Results:
    """Everything that one run of the benchmark has come to so far."""

    about: dict[str, Any]  # date, command, machine
    ceilings: Ceilings  # of the machine, measured before everything else
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
        "ceilings": asdict(results.ceilings),
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
        "figures": {each.goal.name: _figure_json(each) for each in results.compared()},
        "problems": results.problems(),
        "runs": [
            {"system": each.system, "others": each.others, **each.run.as_dict()} for each in results.measured
        ],
    }


def _figure_json(each: Comparison) -> dict[str, Any]:
    goal = each.goal
    return {
        "title": goal.title,
        "unit": goal.unit.name,
        "better": goal.better,
        "bar": goal.bar,
        "moonshot": goal.moonshot,
        "relative": goal.relative,
        "best_peer": each.best,
        "ratio": each.ratio,
        "met": each.reaches(goal.bar),
        "stated": asdict(goal.stated) if goal.stated else None,
        "stated_ratio": each.stated_ratio,
        "stated_met": each.reaches(goal.bar, stated=True),
        "measured": {name: asdict(value) for name, value in each.values.items()},
    }


# ---------------------------------------------------------------- tables, as rows of text


def bars(results: Results) -> list[list[str]]:
    """Penstock's figures, each peer's, and the ratios to the best peer of this run and to what is stated."""
    rows = [
        ["figure", *results.systems, "bar", "moonshot", "ratio to the best peer", "ratio to what is stated"]
    ]
    for each in results.compared():
        goal = each.goal
        rows.append(
            [
                f"{goal.title}{', and idle' if goal.name == MEMORY else ''}, {goal.unit.name}",
                *(_figure(results, each, system) for system in results.systems),
                _wanted(each, goal.bar),
                _wanted(each, goal.moonshot),
                _told(each.ratio, each.best, _met(each) if goal.relative else None),
                _told(each.stated_ratio, _stated(each), _met(each, stated=True)),
            ]
        )
    return rows


def _figure(results: Results, each: Comparison, system: str) -> str:
    shown = _cell(each.values.get(system), each.goal.unit)
    if each.goal.name != MEMORY or system not in each.values:
        return shown
    return f"{shown}; idle {_cell(idle_memory(results, system), MB)}"


def idle_memory(results: Results, system: str) -> Spread | None:
    return spread_of(start.idle_bytes for start in results.starts.get(system, ()))


def _met(each: Comparison, *, stated: bool = False) -> str | None:
    met = each.reaches(each.goal.bar, stated=stated)
    if met is None:
        return None
    reached = met and each.reaches(each.goal.moonshot, stated=stated)
    return "moonshot" if reached else "met" if met else "not met"


def _stated(each: Comparison) -> str:
    goal = each.goal
    if goal.stated is None:
        return f"{goal.bar:,g} {goal.unit.name}"
    return f"{goal.stated.value * goal.unit.scale:,g} {goal.unit.name}, {goal.stated.whose}"


def _told(ratio: float | None, beside: str | None, met: str | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.2f}x ({beside})" + (f": {met}" if met else "")


def _wanted(each: Comparison, value: float | None) -> str:
    if value is None:
        return ""
    sign = ">=" if each.goal.better == "more" else "<="
    return f"{sign} {value:g}x" if each.goal.relative else f"{sign} {value:,g} {each.goal.unit.name}"


def by_workload(results: Results) -> list[list[str]]:
    """One row for each system and workload; a system that was not measured is a row with the reason."""
    rows = [["workload", "system", *(name for name, _, _ in COLUMNS)]]
    for workload in results.workloads:
        for name, system in results.systems.items():
            runs = whole(results.measured, name, workload)
            if runs:
                cells = [_cell(spread_of(map(of, runs)), unit) for _, unit, of in COLUMNS]
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
                _cell(spread_of(start.seconds for start in starts), SECONDS),
                _cell(idle_memory(results, name), MB),
                f"{max(start.idle_cores for start in starts):.1%}" if starts else "-",
            ]
        rows.append([name, system.title, system.numbers, *cells])
    return rows


def _cell(value: Spread | None, unit: Unit) -> str:
    if value is None:
        return "-"
    middle, low, high = (f"{x * unit.scale:,.{unit.digits}f}" for x in (value.median, value.min, value.max))
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
        f"{where}; {what}. {in_words(results.ceilings)} {METHOD}",
        "",
        *_markdown(bars(results)),
        "",
        STATED,
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
