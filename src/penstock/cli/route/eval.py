"""`penstock route eval`: how good a router is on measured outcomes, beside what it must beat."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import examples
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.aio.evaluate.dataset import Dataset
    from penstock.aio.evaluate.report import Report
    from penstock.aio.evaluate.timing import DecisionTime

EPILOG = examples(
    ("penstock route eval --data outcomes.csv", "the default recipe, beside the baselines"),
    ("penstock route eval --data outcomes.csv.gz --json", "one JSON object, all figures at its top"),
    ("penstock route eval --data log.jsonl --recipe light --recipe encoder", "two recipes in one table"),
    (
        "penstock route eval --data mmlu.csv --also folder/ --plot reliability.svg",
        "more to learn from; a diagram",
    ),
)


def evaluate(
    data: Annotated[
        list[Path],
        typer.Option(
            "--data",
            metavar="FILE",
            help="Outcomes: CSV (also .gz) or JSONL. May be repeated.",
            show_default=False,
        ),
    ],
    also: Annotated[
        list[Path] | None,
        typer.Option(
            "--also",
            metavar="FOLDER",
            help="Files to learn from as well, without the questions that are judged.",
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            "--recipe",
            metavar="NAME",
            help="[dim]light or encoder. Default: light.[/dim]",
            show_default=False,
        ),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", metavar="N", help="Parts of the cross-validation.")] = 5,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", help="With other folds each time.")] = 3,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Which rows fall into which fold.")] = 0,
    target: Annotated[
        float, typer.Option("--target", metavar="SHARE", help="Quality wanted, as a share of the expert's.")
    ] = 0.95,
    price: Annotated[
        list[str] | None,
        typer.Option(
            "--price",
            metavar="MODEL=COST",
            help="Cost of a model's answer, in any unit. [dim]Default: its billions of parameters.[/dim]",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.svg", help="Write a reliability diagram.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Judge routers by cross-validation on measured outcomes, never on rows they were trained on."""
    from penstock.aio.evaluate.dataset import priced, read_dataset
    from penstock.aio.evaluate.figures import as_json as figures
    from penstock.aio.evaluate.recipes import recipe_named
    from penstock.aio.evaluate.report import Plan, evaluate, steps
    from penstock.aio.evaluate.shipped import load_shipped
    from penstock.aio.evaluate.timing import decision_time
    from penstock.cli.route.eval_tables import tables

    names = list(dict.fromkeys(recipe or ["light"]))
    recipes = {name: recipe_named(name) for name in names}
    plan = Plan(folds, repeats, seed, target)
    prices = _prices(price or [])
    files = [read_dataset(path) for path in data]
    files = [
        priced(file, {name: cost for name, cost in prices.items() if name in file.models}) for file in files
    ]
    _all_used(prices, files)
    others = [read_dataset(path) for folder in also or [] for path in _files_of(folder, data)]
    shipped = load_shipped(names[0])
    reports: list[tuple[Report, DecisionTime]] = []
    with _progress(sum(steps(file, len(recipes), plan) for file in files)) as step:
        for file in files:
            decisions = decision_time(shipped.predictor, file.texts)
            reports.append(
                (
                    evaluate(
                        file,
                        recipes,
                        plan,
                        also=others,
                        shipped=shipped,
                        classifier=decisions.p50 / 1000,
                        step=step,
                    ),
                    decisions,
                )
            )
    if plot is not None:
        _write_plot(plot, reports[0][0], names[0])
    if as_json:
        found = [figures(report, names[0], decisions) for report, decisions in reports]
        # One file's figures stand at the top; those of several stand in a list.
        print(json.dumps(found[0] if len(found) == 1 else {"files": found}, indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(tables(report, decisions) for report, decisions in reports))


def _prices(given: list[str]) -> dict[str, float]:
    prices = {}
    for text in given:
        name, _, cost = text.rpartition("=")
        try:
            prices[name] = float(cost)
        except ValueError:
            prices[name] = -1.0
        if not name or not 0.0 <= prices[name] < float("inf"):
            raise ConfigError(f"--price must be MODEL=COST, such as Llama-3.1-8B=0.2, got {text[:64]!r}.")
    return prices


def _all_used(prices: dict[str, float], files: list[Dataset]) -> None:
    for name in prices:
        if not any(name in file.models for file in files):
            models = ", ".join(files[0].models)
            raise ConfigError(f"--price names {name!r}, which no file has; {files[0].name} has {models}.")


def _files_of(folder: Path, judged: list[Path]) -> list[Path]:
    """The files of outcomes in a folder, without those that are judged: they are split, not added."""
    if not folder.is_dir():
        raise ConfigError(f"--also needs a folder of files with outcomes, got {folder}.")
    mine = {path.resolve() for path in judged}
    found = [
        path for ending in ("*.csv", "*.csv.gz", "*.jsonl", "*.jsonl.gz") for path in folder.glob(ending)
    ]
    return sorted(path for path in found if path.resolve() not in mine)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A line on a terminal's stderr that says what is being trained; silent elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as shown:
        task = shown.add_task("reading", total=total)
        yield lambda what: shown.update(task, advance=1, description=what)


def _write_plot(path: Path, report: Report, recipe: str) -> None:
    from penstock.aio.evaluate.plot import reliability_svg

    title = f"{report.data.name}: {recipe}, questions not trained on"
    try:
        path.write_text(reliability_svg(title, report.seen[recipe].calibration), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--plot {path} cannot be written: {error.strerror}.") from error
