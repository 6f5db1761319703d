"""`penstock doctor`: what this machine can run, what is missing, and what to type."""

from __future__ import annotations

import json
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from penstock import __version__
from penstock.cli.options import examples
from penstock.doctor.finding import gib
from penstock.doctor.fit import STATED_CONTEXT

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.doctor.examination import Report
    from penstock.doctor.finding import Finding

EPILOG = examples(
    ("penstock doctor", "this machine, and the models on it"),
    ("penstock doctor ./model.gguf", "whether one model can be served here, and how"),
    ("penstock doctor org/name --json | jq .can_serve", "for scripts; the exit code says the same"),
)
_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "bold red"}
_STATUS, _NAME, _MARGIN = 9, 15, 2
_EXPANDED = "A GGUF file of 8 or 4 bits takes as much memory as float32: it is expanded when it is loaded."
_SHORT = "short: with less context than that."
_SIZES_NOTES = {
    "int8": "int8 is what the CPU computes in unless told otherwise, as by --precision float32. "
    "A GGUF file of 4 bits takes little more than half of it.",
    "cpu": "float32 is what the CPU computes in unless told otherwise, as by --precision bfloat16. "
    + _EXPANDED,
    "cuda": "A GPU computes in what the files hold unless told otherwise, as by --precision bfloat16. "
    + _EXPANDED,
}
_LEAST_COLUMNS = 60  # narrower terminals break the lines themselves
_MOST_COLUMNS = 100  # longer lines are harder to read, however wide the terminal is


def doctor(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A model to look at closely: 'default', a hub id that was fetched, a GGUF file or a folder. "
            "[dim]Default: the one that is configured.[/dim]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; docs/doctor.md.")] = False,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="Configuration file; penstock.yaml otherwise."),
    ] = None,
) -> None:
    """Say what this machine can run, which models fit, what is missing, and what to type.

    Changes nothing and uses no network. The exit code is 1 if something prevents serving, otherwise 0.
    """
    from penstock.doctor.examination import examine_all

    report = examine_all(model, config)
    if as_json:
        print(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        _show(report)
    if report.problems:
        raise typer.Exit(1)


def _show(report: Report) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    width = max(_LEAST_COLUMNS, min(console.width, _MOST_COLUMNS))
    console.print(f"[bold]Penstock {__version__}[/bold]: what this machine can run")
    for section, findings in groupby(report.findings, key=lambda finding: finding.section):
        console.print(f"\n[bold]{escape(section)}[/bold]")
        for finding in findings:
            _show_finding(console, finding, width)
    _show_sizes(console, report, width)
    _conclude(console, report, width)


def _show_finding(console: Console, finding: Finding, width: int) -> None:
    indent = " " * (_MARGIN + _STATUS + _NAME)
    lines = textwrap.wrap(
        finding.sentence, width - len(indent), break_long_words=False, break_on_hyphens=False
    )
    status = f"[{_COLOURS[finding.status]}]{finding.status:<{_STATUS}}[/]"
    head = f"{' ' * _MARGIN}{status}{escape(f'{finding.name:<{_NAME}}')}"
    if len(finding.name) >= _NAME:  # a name as long as a path stands alone
        console.print(head)
        head = indent
    console.print(f"{head}{escape(lines[0])}")
    for line in lines[1:]:
        console.print(f"{indent}{escape(line)}")
    if finding.command is not None:
        # Never broken into lines: it is there to be copied.
        console.print(f"{' ' * (_MARGIN + _STATUS)}[dim]type:[/dim] {escape(finding.command)}")


def _show_sizes(console: Console, report: Report, width: int) -> None:
    budget = report.budget
    device = "CPU" if budget.device == "cpu" else "GPU"
    console.print(
        f"\n[bold]What fits[/bold] on the {device} with {gib(budget.available)} available, "
        f"and {STATED_CONTEXT:,} tokens of context"
    )
    formats = [fitted.precision for fitted in report.well_known[0].fits]
    console.print(f"  {'size':<8}{'such as':<18}" + "".join(f"{name:<17}" for name in formats).rstrip())
    for known in report.well_known:
        cells = [f"{gib(fitted.needed):<10}" + fitted.verdict for fitted in known.fits]
        size = f"{known.parameters / 1e9:.1f} B"
        console.print(f"  {size:<8}{known.like:<18}" + "".join(f"{cell:<17}" for cell in cells).rstrip())
    which = "int8" if "int8" in formats else budget.device
    for line in textwrap.wrap(f"{_SIZES_NOTES[which]} {_SHORT}", width - _MARGIN):
        console.print(f"  [dim]{line}[/dim]")


def _conclude(console: Console, report: Report, width: int) -> None:
    problems = report.problems
    if problems:
        names = ", ".join(f"{finding.name} ({finding.section})" for finding in problems)
        sentence = f"Serving is prevented by: {names}."
        colour = _COLOURS["problem"]
    else:
        sentence, colour = "This machine can serve.", _COLOURS["ok"]
    console.print()
    for line in textwrap.wrap(sentence, width):
        console.print(f"[{colour}]{escape(line)}[/]")
