"""What the measurements share: options, and where their results go."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from penstock.bench import workloads
from penstock.cli.options import ENGINE_OPTIONS
from penstock.config import options
from penstock.errors import ConfigError

if TYPE_CHECKING:
    pass

Repeat = Annotated[
    int, typer.Option("--repeat", "-r", metavar="N", min=1, help="Runs of each; the median is shown.")
]
Salt = Annotated[
    str | None,
    typer.Option(
        "--salt", metavar="TEXT", help="The same salt gives the same prompts.", show_default="random"
    ),
]
Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON; '-' is stdout.")
]


def _html(context: typer.Context, path: str | None) -> str | None:
    """The file to write; `console` is where a server on this machine shows it to its administrators."""
    if path != "console":
        return path
    from penstock.cli.state import state_settings
    from penstock.gateway.console.reports import FOLDER
    from penstock.gateway.store import state_folder

    folder = state_folder(state_settings(None, None).state_dir) / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}; name a file with --html.") from None
    return str(folder / f"{context.info_name}-{time.strftime('%Y-%m-%d-%H%M%S')}.html")


Html = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        callback=_html,
        help="Write a page with tables and plots; 'console' shows it in the console of a server here.",
    ),
]
PricePerHour = Annotated[
    float | None,
    typer.Option(
        "--price-per-hour",
        metavar="PRICE",
        min=0,
        help="What the machine costs an hour; gives the cost of 1M tokens.",
    ),
]
ShowCeilings = Annotated[
    bool, typer.Option("--ceilings/--no-ceilings", help="Measure what the hardware could do at best.")
]
NAMES = "; ".join(f"{name}: {text}" for name, text in workloads.DESCRIPTIONS.items())
PANEL = "Workload"

Names = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        "-w",
        metavar="NAME",
        help=f"May be repeated. {NAMES}.",
        show_default="W2",
        rich_help_panel=PANEL,
    ),
]
Requests = Annotated[
    int | None, typer.Option("--requests", metavar="N", help="Number of requests.", rich_help_panel=PANEL)
]
InputLen = Annotated[
    str | None,
    typer.Option("--input-len", metavar="N|A-B", help="Prompt tokens, or a range.", rich_help_panel=PANEL),
]
OutputLen = Annotated[
    str | None,
    typer.Option("--output-len", metavar="N|A-B", help="Output tokens, or a range.", rich_help_panel=PANEL),
]
PrefixLen = Annotated[
    int | None,
    typer.Option(
        "--prefix-len",
        metavar="N",
        min=0,
        help="Tokens that all prompts share, beside their own.",
        rich_help_panel=PANEL,
    ),
]
Clients = Annotated[
    int | None,
    typer.Option(
        "--clients",
        metavar="N",
        help="Requests in flight at most: each client waits for its answer.",
        rich_help_panel=PANEL,
    ),
]


@contextmanager
def progress(title: str, tokens: int) -> Iterator[Callable[[int], None]]:
    """A bar of output tokens on stderr, where there is a terminal to see it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tokens"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal, refresh_per_second=4) as bar:
        task = bar.add_task(title, total=tokens)
        yield lambda count: bar.advance(task, count)


def publish(content: dict[str, Any], json_path: str | None, html_path: str | None) -> None:
    """Files first: a terminal that goes away must not take the measurement with it, nor a full disk."""
    from rich.console import Console

    from penstock.bench.page import page
    from penstock.bench.report import tables

    text = json.dumps(content, indent=2) + "\n"
    if json_path == "-":
        print(text, end="")
    problems = [
        *_write("--json", json_path if json_path != "-" else None, text),
        *_write("--html", html_path, page(content) if html_path else ""),
    ]
    # With JSON on stdout, people read stderr.
    console = Console(stderr=json_path == "-", highlight=False)
    for table in tables(content):
        console.print(table)
    if problems:
        raise ConfigError(" ".join(problems))


def _write(option: str, path: str | None, text: str) -> Iterator[str]:
    """A sentence where it cannot be done: the tables are still to be shown."""
    try:
        if path:
            Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        yield f"{option} names {path}, which could not be written: {error.strerror}; the result is above."


def published_command() -> list[str]:
    return ["penstock", *without_keys(sys.argv[1:])]


def refuse_given(context: typer.Context, names: Container[str | None], reason: str) -> None:
    """An option that would have no effect is a misunderstanding: better said before than after measuring."""
    for parameter in context.command.params:
        if parameter.name in names and _given(context, parameter.name):
            raise ConfigError(f"{parameter.opts[0]} {reason}")


def refuse_engine_options(context: typer.Context) -> None:
    flags = {flag for name in ENGINE_OPTIONS for flag in options()[name].flags}
    names = {flag.removeprefix("--").replace("-", "_") for flag in flags}
    refuse_given(context, names, "is for the engine of this process, and --url names a server; leave it out.")


def _given(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name) if name else None
    return source is not None and source.name == "COMMANDLINE"


def check_url(url: str) -> str:
    """The host that a URL names."""
    parts = urlsplit(url)
    try:
        known = parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        known = False
    if not known or not parts.hostname:
        raise ConfigError(f"--url must be an address such as http://127.0.0.1:8000, got {url!r}.")
    return parts.hostname


def is_here(url: str) -> bool:
    """Whether a server is on this machine: another one's ceilings cannot be measured from here."""
    return check_url(url) in ("127.0.0.1", "localhost", "::1")


def check_writable(json_path: str | None, html_path: str | None = None) -> None:
    """Before an hour of measuring, not after."""
    for option, path in (("--json", json_path), ("--html", html_path)):
        if path is None or (path == "-" and option == "--json"):
            continue
        try:
            with open(path, "a", encoding="utf-8"):
                pass
        except OSError as error:
            raise ConfigError(f"{option} names {path}, which cannot be written: {error.strerror}.") from None


def without_keys(arguments: list[str]) -> list[str]:
    """The command as it may be published."""
    shown = list(arguments)
    for number, argument in enumerate(shown):
        if argument == "--api-key" and number + 1 < len(shown):
            shown[number + 1] = "..."
        elif argument.startswith("--api-key="):
            shown[number] = "--api-key=..."
    return shown
