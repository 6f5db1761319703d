"""What the person at the terminal sees: progress while the model comes, then where to find it."""

from __future__ import annotations

import json
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from penstock.config import Settings, models_of
from penstock.gateway.deployment import Deployment


class Banner:
    """Plain lines where there is no terminal, so that logs and scripts can read them."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()
        self._stage = ""  # of the fetch, as last printed
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Banner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_progress()

    def fetching(self, stage: str, done: int, total: int | None) -> None:
        if not self._console.is_terminal:
            self._fetching_line(stage, total)
            return
        if self._progress is None:
            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._progress.start()
            self._task = self._progress.add_task(stage, total=total)
        assert self._task is not None
        self._progress.update(self._task, description=stage, completed=done, total=total)

    def _fetching_line(self, stage: str, total: int | None) -> None:
        if stage != self._stage:
            self._stage = stage
            size = f" ({total / 1e6:.0f} MB)" if total else ""
            self._console.print(f"{escape(stage)}{size} ...")

    def loading(self, models: Sequence[str]) -> None:
        """One name for each engine."""
        self._stop_progress()
        if self._stage:
            self._console.print(f"Fetched after {time.monotonic() - self._began:.0f} s.")
        for name, count in Counter(models).items():
            many = f" ({count} engines)" if count > 1 else ""
            self._console.print(f"Loading {escape(name)}{many} ...")

    def ready(self, url: str, deployments: Sequence[Deployment], settings: Settings, *, locked: bool) -> None:
        seconds = time.monotonic() - self._began
        for deployment in deployments:
            ready = f" is ready after {seconds:.1f} s" if deployment.served is not None else ""
            self._console.print(f"[bold]{escape(deployment.name)}[/bold]{ready}: {_made(deployment)}.")
        path, body = _example(deployments[0])
        self._try(url, path, body, settings, locked=locked)

    def _try(self, url: str, path: str, body: dict[str, Any], settings: Settings, *, locked: bool) -> None:
        self._console.print(f"Listening on [bold green]{url}[/bold green] (OpenAI base URL {url}/v1). Try:\n")
        lines = [
            f"curl {url}{path}",
            "-H 'Content-Type: application/json'",
            f"-d {shlex.quote(json.dumps(body))}",
        ]
        if locked:
            lines.insert(1, "-H 'Authorization: Bearer YOUR_KEY'")
        self._console.print("  " + " \\\n    ".join(lines) + "\n", markup=False)
        if settings.gateway.console.enabled:
            key = " --key YOUR_ADMIN_KEY" if locked else ""
            self._console.print(f"Watch it at {url}/ in a browser, or with: penstock top --url {url}{key}")
        if not locked:
            self._console.print("There are no API keys: whoever can reach this address may call.")
        self._console.print("Press Ctrl-C to stop.")

    def ready_together(self, url: str, settings: Settings, *, locked: bool) -> None:
        """The same where other processes answer, and only the configuration is known here."""
        seconds = time.monotonic() - self._began
        models = models_of(settings)
        names = ", ".join(model.name for model in models)
        self._console.print(
            f"[bold]{escape(names)}[/bold] ready after {seconds:.1f} s: {settings.workers} front processes."
        )
        self._try(url, "/v1/chat/completions", _chat(models[0].name), settings, locked=locked)

    def draining(self, seconds: float) -> None:
        self._console.print(
            f"Stopping: running requests may take up to {seconds:g} s; press Ctrl-C again to leave at once."
        )

    def _stop_progress(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _made(deployment: Deployment) -> str:
    """What stands behind a model."""
    served, replicas = deployment.served, len(deployment.dispatcher.members)
    if served is None:
        return f"{replicas} server{'s' if replicas != 1 else ''} behind it"
    info = served.info
    made = f"{info.num_blocks} KV blocks of {info.block_size} tokens"
    if "generate" not in info.tasks:
        made = f"vectors of {info.embedding_size}" if info.embedding_size else "scores of pairs"
    many = f", {replicas} replicas" if replicas > 1 else ""
    runs = f"{info.architecture}, {info.precision} on {info.device}, context {info.max_model_len} tokens"
    return f"{runs}, {made}{many}"


def _chat(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Say hello."}]}


def _example(deployment: Deployment) -> tuple[str, dict[str, Any]]:
    """A first request, as the model's main task wants it."""
    model = deployment.name
    tasks = deployment.served.tasks if deployment.served is not None else ("generate",)
    if "generate" in tasks:
        return "/v1/chat/completions", _chat(model)
    if "embed" in tasks:
        return "/v1/embeddings", {"model": model, "input": ["A river.", "A stream."]}
    return "/v1/rerank", {"model": model, "query": "Where is water?", "documents": ["A river.", "A desert."]}
