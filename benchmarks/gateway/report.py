"""A run as a table and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .figures import FIGURES, Figure, Results


def table(results: dict[str, Results], missing: dict[str, str], title: str) -> Table:
    """One row for each figure; gateways side by side. `missing` are those that did not start, and why."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    shown.add_column("figure")
    shown.add_column("bar", justify="right")
    for name in results:
        shown.add_column(name, justify="right")
    for peer in _peers(results):
        shown.add_column(f"better than {peer}", justify="right")
    for figure in FIGURES.values():
        if any(figure.name in each.values for each in results.values()):
            shown.add_row(*_row(figure, results))
    for name, reason in missing.items():
        shown.add_row(f"{name} did not start: {escape(reason)}", style="red")
    return shown


def _row(figure: Figure, results: dict[str, Results]) -> list[str]:
    sign = ">=" if figure.better == "more" else "<="
    cells = [f"{figure.title} ({figure.unit})", f"{sign} {figure.shown(figure.bar)}" if figure.bar else ""]
    medians: dict[str, float] = {}
    for name, result in results.items():
        summary = result.summary(figure.name)
        if summary is None:
            cells.append("-")
            continue
        medians[name] = summary["median"]
        text = figure.shown(summary["median"])
        if summary["min"] != summary["max"]:
            text += f" ({figure.shown(summary['min'])} to {figure.shown(summary['max'])})"
        if name == "penstock" and (met := figure.meets(summary["median"])) is not None:
            text = f"[{'green' if met else 'red'}]{text}[/]"
        cells.append(text)
    ours = medians.get("penstock", 0.0)
    return cells + [_advantage(figure, ours, medians.get(peer, 0.0)) for peer in _peers(results)]


def _peers(results: dict[str, Results]) -> list[str]:
    """Who Penstock is held against."""
    return [name for name in results if name != "penstock"] if "penstock" in results else []


def _advantage(figure: Figure, ours: float, theirs: float) -> str:
    """How many times better, in whichever direction is better; nothing where there is no telling."""
    if ours <= 0 or theirs <= 0:
        return ""
    times = ours / theirs if figure.better == "more" else theirs / ours
    return f"{times:,.3g}x" if times < 1000 else f"{times:,.0f}x"


def as_json(results: dict[str, Results], missing: dict[str, str], about: dict[str, Any]) -> dict[str, Any]:
    return {
        **about,
        "figures": {
            figure.name: {
                "title": figure.title,
                "unit": figure.unit,
                "bar": figure.bar,
                "moonshot": figure.moonshot,
                "better": figure.better,
                "measured": {
                    name: {**summary, "repeats": result.values[figure.name]}
                    for name, result in results.items()
                    if (summary := result.summary(figure.name))
                },
            }
            for figure in FIGURES.values()
        },
        "problems": {name: result.problems for name, result in results.items() if result.problems},
        "not_measured": missing,
        "phases": {name: result.raw for name, result in results.items()},
    }


def show_problems(console: Console, results: dict[str, Results]) -> None:
    for name, result in results.items():
        for problem in dict.fromkeys(result.problems):
            console.print(f"{name}: {problem}", style="yellow", markup=False)
