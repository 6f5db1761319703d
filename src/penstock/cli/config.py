"""`penstock config`: what a penstock.yaml means, what is wrong with it, and one made from LiteLLM's."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.config_show import as_json, show
from penstock.cli.options import examples
from penstock.config import Examined, examine
from penstock.config.problems import Problem, Problems
from penstock.errors import ConfigError

app = typer.Typer(
    name="config", help="Check a penstock.yaml, or make one from another's.", no_args_is_help=True
)
CHECK_EPILOG = examples(
    ("penstock config check", "penstock.yaml in this folder"),
    ("penstock config check prod.yaml --connect", "and ask each server whether it knows its model"),
    ("penstock config check --json | jq .problems", "for scripts; the exit code says the same"),
)
CONVERT_EPILOG = examples(
    ("penstock config from-litellm config.yaml", "to the terminal"),
    (
        "penstock config from-litellm config.yaml -o penstock.yaml",
        "to a file; what has no equivalent is listed",
    ),
)


@app.command(epilog=CHECK_EPILOG)
def check(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="The file. [dim]Default: PENSTOCK_CONFIG, or penstock.yaml here.[/dim]",
            show_default=False,
        ),
    ] = None,
    json_wanted: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    connect: Annotated[
        bool, typer.Option("--connect", help="Ask each server whether it is there and knows its model.")
    ] = False,
) -> None:
    """Say what a configuration means, or everything that is wrong with it.

    The environment counts too. The exit code is 0 if it can be served, 2 if it is wrong, and 1 if
    --connect found a server that does not answer or does not know its model.
    """
    from penstock.config.checks import warnings_of

    try:
        examined, doubts = _with_ladder(_with_tracing(_with_servers(examine(config=_existing(file)))))
    except ConfigError as error:
        examined, doubts = Examined(file=None, settings=None, problems=(Problem(sentence=str(error)),)), []
    settings = examined.settings
    warnings = [] if settings is None else [*warnings_of(settings), *doubts]
    answers = []
    if connect and settings is not None:
        from penstock.cli.config_connect import ask_all

        answers = ask_all(settings)
    if json_wanted:
        print(json.dumps(as_json(examined, warnings, answers), indent=2, ensure_ascii=False))
    elif settings is None:
        for problem in examined.problems:
            print(f"penstock: {problem.sentence}", file=sys.stderr)
    else:
        show(examined.file, settings, warnings, answers)
    if settings is None:
        raise typer.Exit(2)
    if any(not answer.good for answer in answers):
        raise typer.Exit(1)


@app.command("from-litellm", epilog=CONVERT_EPILOG)
def from_litellm(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The proxy's config.yaml.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write it; a file that exists is kept."),
    ] = None,
) -> None:
    """Convert LiteLLM's proxy configuration. What has no equivalent is listed, here and in the file."""
    from penstock.config.document import parse_document, read_text
    from penstock.config.litellm import convert

    path = Path(file).expanduser()
    _existing(file)
    document = parse_document(read_text(path), str(path), None)
    converted = convert(document.root.plain() or {}, path.name)
    if output is None:
        print(converted.text, end="")
    else:
        _write_new(Path(output), converted.text)
        print(f"penstock: wrote {output}; look at it with `penstock config check {output}`.", file=sys.stderr)
    for note in converted.notes:
        print(f"note: {note}", file=sys.stderr)


def _with_servers(examined: Examined) -> Examined:
    """The same, with what the kinds of servers themselves have to say of their options."""
    from penstock.gateway.backends.registry import check as check_backend

    settings = examined.settings
    if settings is None or examined.file is None:
        return examined
    problems = _problems_of(examined.file)
    for model in settings.gateway.models:
        for number, backend in enumerate(model.backends):
            try:
                check_backend(backend)
            except ConfigError as error:
                place = f"models.{model.name}.backends[{number}].options"
                problems.add(place, f"cannot be used: {str(error).rstrip('.')}")
    return _with_problems(examined, problems)


def _with_tracing(examined: Examined) -> Examined:
    """The same, with what keeps requests from being traced as it says."""
    from penstock.observe.open_tracing import open_tracing

    if examined.settings is None or examined.file is None:
        return examined
    problems = _problems_of(examined.file)
    try:
        open_tracing(examined.settings.gateway.tracing)
    except ConfigError as error:
        problems.add("tracing", f"cannot be used: {str(error).rstrip('.')}")
    return _with_problems(examined, problems)


def _with_ladder(examined: Examined) -> tuple[Examined, list[str]]:
    """The same, with what is wrong with the tiers for whoever rates requests; and what is only doubtful."""
    settings = examined.settings
    if settings is None or examined.file is None or not settings.gateway.tiers:
        return examined, []
    from penstock.aio.steps import held_out, unmeasured
    from penstock.gateway.routing.ladder import load, steps_of, targets_out_of_reach

    gateway, problems = settings.gateway, _problems_of(examined.file)
    try:
        predictor = load(gateway.routing.predictor)
    except ConfigError as error:
        problems.add("routing.predictor", f"cannot be used: {str(error).rstrip('.')}")
        return _with_problems(examined, problems), []
    steps = steps_of(gateway, predictor.sample.references)
    for step in steps:
        if (wrong := unmeasured(step, predictor)) is not None:
            problems.add(f"tiers.{step.tier}", wrong)
    if problems.found:
        return _with_problems(examined, problems), []
    ladder = held_out(steps, predictor).ladder(gateway.routing.caution)
    return examined, list(targets_out_of_reach(gateway, steps, ladder))


def _problems_of(file: Path) -> Problems:
    from penstock.config.document import read_document

    return Problems(str(file), read_document(file, os.environ).lines)


def _with_problems(examined: Examined, problems: Problems) -> Examined:
    if not problems.found:
        return examined
    return dataclasses.replace(examined, settings=None, problems=tuple(problems.found))


def _existing(file: str | None) -> str | None:
    if file is not None and not Path(file).expanduser().is_file():
        raise ConfigError(f"{file} is not a file; correct the path.")
    return file


def _write_new(path: Path, text: str) -> None:
    """A file for its owner alone: it may hold keys."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already; remove it, or choose another name with -o.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None
