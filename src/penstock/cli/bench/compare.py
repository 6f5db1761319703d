"""`penstock bench compare`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.bench.compare import Comparison, compare, compared, turns, worse
from penstock.bench.result import read_result
from penstock.bench.workloads import Workload
from penstock.cli.bench.common import (
    Repeat,
    is_here,
    publish,
    published_command,
    refuse_given,
)
from penstock.cli.bench.groups import Connection, Measuring, Work, grouped_options
from penstock.cli.bench.load import (
    SERVER_PANEL,
    Interruption,
    Model,
    base_url,
    check_something_measured,
    leave,
    live,
    run_async,
)
from penstock.cli.options import examples
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.bench.statistics import Run
    from penstock.bench.target import Target

EPILOG = examples(
    ("penstock bench compare before.json after.json", "two results of --json, B against A"),
    (
        "penstock bench compare before.json after.json --fail-if-worse 5",
        "status 1 if B is more than 5% worse",
    ),
    (
        "penstock bench compare --url http://127.0.0.1:8000 --url http://127.0.0.1:8001 -w W3 -r 3",
        "two servers in turns: A B B A A B",
    ),
)
SIDES = 2
OF_FILES = {"files", "name", "fail_if_worse", "json_path", "html_path"}  # options that mean something to two
WARM_UP = Workload(name="warm-up", requests=2, input_len=(16, 16), output_len=(8, 8))


@grouped_options
def compare_command(
    *,
    context: typer.Context,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[A.json B.json]", help="Two results of --json.")
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="A server to measure; give it twice, A and then B.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="NAME", help="What A and then B are called.", show_default="from the files"
        ),
    ] = None,
    fail_if_worse: Annotated[
        float | None,
        typer.Option(
            "--fail-if-worse",
            metavar="PERCENT",
            min=0,
            help="The status is 1 if B is worse by more: output or decode tok/s, goodput, TTFT or end to end "
            "p50, failures. Not by what is within the spread.",
        ),
    ] = None,
    model: Model = None,
    connection: Connection,
    work: Work,
    repeat: Repeat = 3,
    measuring: Measuring,
) -> None:
    """Set two results beside each other, or measure two servers in turns."""
    names = _names(name)
    if files and url:
        raise ConfigError("Give either two results to compare or --url twice, not both.")
    salt = measuring.begin()
    from penstock.bench.report import frame

    if not url:
        if files is None or len(files) != SIDES:
            raise ConfigError(f"Give two results to compare, or --url twice; got {len(files or ())} files.")
        others = {parameter.name for parameter in context.command.params} - OF_FILES
        refuse_given(context, others, "is for measuring with --url; two results are compared as they are.")
        found = _of_files(files, names)
    else:
        found = _of_servers(url, names, model, connection, work, repeat, salt, measuring)
    subject = {"names": list(found.names), "interleaved": bool(url)}
    content = frame("compare", published_command(), subject, None)
    publish(content | compared(found.sides, found.comparisons), measuring.json_path, measuring.html_path)
    if not found.stop():
        _judge(found, fail_if_worse)
    leave(found.runs, found.stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    sides: list[dict[str, Any]]
    names: tuple[str, str]
    comparisons: list[Comparison]
    runs: list[Run] = field(default_factory=list)  # that were made here
    stop: Interruption = field(default_factory=Interruption)


def _of_files(files: list[str], names: tuple[str, str] | None) -> _Found:
    sides = [read_result(path) for path in files]
    stems = Path(files[0]).stem, Path(files[1]).stem
    shown = names or (stems if stems[0] != stems[1] else (files[0], files[1]))
    return _Found(sides=sides, names=shown, comparisons=compare(sides[0], sides[1], shown))


def _of_servers(
    url: list[str],
    names: tuple[str, str] | None,
    model: str | None,
    connection: Connection,
    work: Work,
    repeat: int,
    salt: str,
    measuring: Measuring,
) -> _Found:
    if len(url) != SIDES:
        raise ConfigError(f"--url must be given twice, for A and for B; got it {len(url)} times.")
    near = [is_here(one) for one in url]
    connection.check()
    slo, chosen = work.limits(), work.chosen()
    from penstock.bench.ceilings import measure
    from penstock.bench.report import report

    targets = [connection.target(base_url(one), model) for one in url]
    limits = measure() if measuring.ceilings and all(near) else None
    shown = names or (targets[0].url, targets[1].url)
    with Interruption() as stop:
        runs = _in_turns(targets, shown, chosen, repeat, salt, slo, stop)
    check_something_measured([*runs[0], *runs[1]], stop)
    sides = [
        report(
            kind="serve",
            command=published_command(),
            subject={"url": target.url, "model": target.model, "endpoint": target.endpoint, "salt": salt},
            runs=found,
            ceilings=limits,
            price_per_hour=measuring.price_per_hour,
        )
        for target, found in zip(targets, runs, strict=True)
    ]
    try:
        comparisons = compare(sides[0], sides[1], shown)
    except ConfigError:
        if not stop():
            raise
        comparisons = []  # stopped too early; what was measured is shown all the same
    return _Found(sides=sides, names=shown, comparisons=comparisons, runs=[*runs[0], *runs[1]], stop=stop)


def _names(given: list[str] | None) -> tuple[str, str] | None:
    if not given:
        return None
    if len(given) != SIDES:
        raise ConfigError(f"--name must be given twice, for A and for B; got it {len(given)} times.")
    return given[0], given[1]


def _in_turns(
    targets: list[Target],
    names: tuple[str, str],
    chosen: list[Workload],
    repeat: int,
    salt: str,
    slo: dict[str, float] | None,
    stop: Interruption,
) -> tuple[list[Run], list[Run]]:
    """What has ended, also when the person who measures stops it."""
    from penstock.bench.online import run_online

    for target in targets:  # A, which is asked first, must not pay alone for what happens once
        run_async(run_online(target, WARM_UP, WARM_UP.jobs(salt=salt), stop=stop))
    runs: tuple[list[Run], list[Run]] = ([], [])
    for item in chosen:
        for side, number in turns(repeat):
            if stop():
                return runs
            # Other prompts for each side: behind the two may be one cache.
            jobs = item.jobs(repeat=number, salt=f"{salt}-{side}")
            with live(f"{item.name} {names[side]}", jobs) as progress:
                work = run_online(
                    targets[side], item, jobs, repeat=number, slo=slo, progress=progress, stop=stop
                )
                runs[side].append(run_async(work))
    return runs


def _judge(found: _Found, percent: float | None) -> None:
    if percent is None:
        return
    complaints = worse(found.comparisons, percent)
    for one in complaints:
        print(_complaint(one, found.names, percent), file=sys.stderr)
    if complaints:
        raise typer.Exit(1)


def _complaint(one: Comparison, names: tuple[str, str], percent: float) -> str:
    by = one.worse_by()
    amount = f"{by:.1%}" if by != float("inf") else f"{one.b.median:g} after none"
    return (
        f"{one.run}: {one.label} of {names[1]} is worse than {names[0]} by {amount} (allowed: {percent:g}%)."
    )
