"""`penstock pull`: fetch a model now, so that serving it later starts at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import examples

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import TaskID

    from penstock.hub import ModelFiles, Progress

EPILOG = examples(
    ("penstock pull", "the default model, 93 MB, needs no model hub"),
    ("penstock pull org/name", "the safetensors of a hub repository"),
    ("penstock pull org/name@v2:model-Q4_K_M.gguf", "one GGUF file of it, at a revision"),
    ("penstock pull ./model.gguf", "check a model that is already here"),
    ('penstock serve "$(penstock pull --quiet)"', "the path alone, for scripts"),
)


def pull(
    model: Annotated[
        str,
        typer.Argument(
            help="'default', a hub id (org/name, org/name@revision, org/name:file.gguf), a GGUF file, "
            "or a safetensors folder."
        ),
    ] = "default",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show no progress; print the path and nothing else.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object about the model.")] = False,
) -> None:
    """Fetch a model into the cache and check it; a model that is there already is only checked.

    The default model is kept under PENSTOCK_HOME (~/.cache/penstock), hub models under HF_HOME.
    """
    from penstock.hub import resolve

    with fetch_progress(quiet=quiet) as progress:
        files = resolve(model, progress=progress)
    size = _bytes(files.path)
    if as_json:
        about = {"name": files.name, "path": str(files.path), "format": files.format, "bytes": size}
        print(json.dumps(about, ensure_ascii=False))
    else:
        if not quiet:
            print(f"{files.name} is ready ({files.format}, {size / 1e6:.0f} MB):", file=sys.stderr)
        print(files.path)


def fetched(model: str) -> ModelFiles:
    """The files of a model that a command is about to load, with progress if they must be fetched first."""
    from penstock.hub import resolve

    with fetch_progress() as progress:
        return resolve(model, progress=progress)


@contextmanager
def fetch_progress(*, quiet: bool = False) -> Iterator[Progress | None]:
    """Shows a fetch on stderr: a bar on a terminal, otherwise a line for each stage."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as progress:
            yield progress
    else:
        yield _Lines()


class _Lines:
    def __init__(self) -> None:
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        if stage != self._stage:
            self._stage = stage
            size = f" ({total / 1e6:.0f} MB)" if total else ""
            print(f"{stage}{size} ...", file=sys.stderr, flush=True)


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}  # the stage that is shown, if any

        def progress(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    bars.remove_task(task)
                tasks.clear()
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield progress


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.iterdir() if file.suffix == ".safetensors"]
    return sum(file.stat().st_size for file in files)
