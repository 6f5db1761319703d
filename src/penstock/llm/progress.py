"""What a terminal shows while one waits."""

from __future__ import annotations

import sys
from typing import Any


class Stages:
    """Says on a terminal what is being fetched, a line for each stage."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        if stage != self._last:
            self._last = stage
            sys.stderr.write(f"{stage}\n")


class ProgressBar:
    """A progress bar on a terminal, or nothing; yields a function to call with the tokens of each answer."""

    def __init__(self, wanted: bool | None, total: int) -> None:
        self._shown = sys.stderr.isatty() if wanted is None else wanted
        self._total = total
        self._tokens = 0

    def __enter__(self) -> Any:
        if not self._shown:
            return lambda tokens: None
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("Generating"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[rate]}"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("", total=self._total, rate="")
        self._progress.start()
        return self._advance

    def _advance(self, tokens: int) -> None:
        self._tokens += tokens
        elapsed = self._progress.tasks[0].elapsed or 1e-9
        self._progress.update(self._task, advance=1, rate=f"{self._tokens / elapsed:.0f} tokens/s")

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._progress.stop()
