"""What the commands that load something share: options, live figures, and Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from penstock.bench import trace
from penstock.bench.arrivals import ARRIVALS
from penstock.bench.progress import Progress
from penstock.bench.slo import METRICS, seconds
from penstock.bench.workloads import Job
from penstock.cli.bench.common import PANEL
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.bench.statistics import Run
    from penstock.bench.target import Target

INTERRUPTED = 130  # 128 + SIGINT, as shells have it
# SIGTERM by itself would end the process with a server that it had started still running.
ENDING = (signal.SIGINT, signal.SIGTERM)
WINDOW_SECONDS = 3.0  # over which the live rate is taken
SERVER_PANEL = "Server"

Rate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        metavar="R",
        help="Requests a second, sent whether or not answers have come (open loop).",
        rich_help_panel=PANEL,
    ),
]
Arrivals = Annotated[
    str | None,
    typer.Option(
        "--arrivals",
        metavar="NAME",
        help=f"How requests come at a rate: {', '.join(ARRIVALS)}.",
        show_default="poisson",
        rich_help_panel=PANEL,
    ),
]
BurstSize = Annotated[
    int | None,
    typer.Option(
        "--burst-size",
        metavar="N",
        help="Requests of a burst; the mean rate stays.",
        show_default="8",
        rich_help_panel=PANEL,
    ),
]
Trace = Annotated[str | None, typer.Option("--trace", metavar="FILE", help=trace.HELP, rich_help_panel=PANEL)]
Speed = Annotated[
    float,
    typer.Option("--speed", metavar="X", help="Play a trace X times as fast.", rich_help_panel=PANEL),
]
Slo = Annotated[
    str | None,
    typer.Option(
        "--slo",
        metavar="LIMITS",
        help="Count the answers that keep limits such as ttft=500ms,tpot=50ms,e2e=5s "
        f"({'; '.join(f'{name}: {text}' for name, text in METRICS.items())}).",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="Model name.",
        show_default="the first it lists",
        rich_help_panel=SERVER_PANEL,
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help="Key for the server; OPENAI_API_KEY otherwise.",
        rich_help_panel=SERVER_PANEL,
    ),
]
Endpoint = Annotated[
    str,
    typer.Option(
        "--endpoint",
        metavar="NAME",
        help="completions (exact token ids) or chat (about as many words).",
        rich_help_panel=SERVER_PANEL,
    ),
]
IgnoreEos = Annotated[
    bool,
    typer.Option(
        "--ignore-eos/--no-ignore-eos",
        help="Ask for answers of exactly the wanted length; without, answers that end early are good too.",
        rich_help_panel=SERVER_PANEL,
    ),
]
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout", metavar="TIME", help="For one answer; then it has failed.", rich_help_panel=SERVER_PANEL
    ),
]
StallTimeout = Annotated[
    str,
    typer.Option(
        "--stall-timeout",
        metavar="TIME",
        help="For the next token of an answer; then the server hangs.",
        rich_help_panel=SERVER_PANEL,
    ),
]
Pid = Annotated[
    int | None,
    typer.Option(
        "--pid",
        metavar="PID",
        min=1,
        help="The server's process: its memory is measured, with its children's.",
        rich_help_panel=SERVER_PANEL,
    ),
]


class Interruption:
    """Ctrl-C, or a polite kill, asks a run to stop and report; a second one leaves at once."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        return self._asked

    def __enter__(self) -> Interruption:
        self._former = {number: signal.signal(number, self._note) for number in ENDING}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _note(self, *_: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        print("Stopping; what was measured so far follows.", file=sys.stderr)


def check_something_measured(runs: Sequence[Run], stop: Interruption) -> None:
    """Ctrl-C before the first request leaves nothing to show."""
    if stop() and not any(run.requests for run in runs):
        print("Nothing was measured.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def leave(runs: Sequence[Run], stop: Interruption) -> None:
    """The exit code says whether every answer was good."""
    if stop():
        raise typer.Exit(INTERRUPTED)
    if any(run.errors or run.timeouts or run.short for run in runs):
        raise typer.Exit(1)


def run_async(work: Coroutine[Any, Any, Run]) -> Run:
    """On the loop that costs least: the machine is shared with what is measured."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def base_url(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1")


def make_target(
    url: str,
    *,
    model: str | None,
    api_key: str | None,
    endpoint: str,
    ignore_eos: bool,
    timeout: float,
    stall_timeout: float,
) -> Target:
    """A server that answers, by the first model it lists where none is named."""
    from penstock.bench.target import Target, first_model

    return Target(
        url=url,
        model=model or asyncio.run(first_model(url, api_key)),
        endpoint=check_endpoint(endpoint),
        api_key=api_key,
        ignore_eos=ignore_eos,
        timeout=timeout,
        stall_timeout=stall_timeout,
    )


def check_endpoint(name: str) -> Literal["completions", "chat"]:
    if name not in ("completions", "chat"):
        raise ConfigError(f"--endpoint must be completions or chat, got {name!r}.")
    return cast(Literal["completions", "chat"], name)


def check_timeouts(timeout: str, stall_timeout: str) -> tuple[float, float]:
    return seconds("timeout", timeout), seconds("stall-timeout", stall_timeout)


def check_pid(pid: int | None) -> None:
    if pid is not None and not os.path.exists(f"/proc/{pid}"):
        raise ConfigError(f"--pid names process {pid}, which does not exist; give the server's.")


@contextmanager
def live(title: str, jobs: Sequence[Job]) -> Iterator[Progress]:
    """The figures of a run under way on stderr, where there is a terminal to see them."""
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    counts = Progress()
    begin = time.perf_counter()
    recent: deque[tuple[float, int]] = deque([(begin, 0)])
    wanted = sum(job.output_len for job in jobs)

    def figures() -> RenderableType:
        now = time.perf_counter()
        recent.append((now, counts.tokens))
        while now - recent[0][0] > WINDOW_SECONDS:
            recent.popleft()
        since, before = recent[0]
        rate = (counts.tokens - before) / max(now - since, 1e-9)
        failed = f"[red]{counts.failed} failed[/red], " if counts.failed else ""
        row = Table.grid(padding=(0, 1))
        row.add_row(
            title,
            ProgressBar(total=wanted, completed=counts.tokens, width=24),
            f"{rate:.0f} tok/s,",
            f"{counts.done}/{len(jobs)} done, {failed}{counts.in_flight} in flight, {now - begin:.0f} s",
        )
        return row

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield counts
        return
    with Live(get_renderable=figures, console=console, refresh_per_second=4, transient=True):
        yield counts


def say_lag(runs: Sequence[Run], json_path: str | None) -> None:
    """Of an open loop one must know that the load was the load asked for."""
    for run in runs:
        lag = run.schedule_lag
        if lag is not None and lag.max is not None and lag.p99 is not None:
            print(
                f"{run.workload}: requests were sent {lag.p99 * 1000:.1f} ms after their moment at p99, "
                f"{lag.max * 1000:.1f} ms at most.",
                file=sys.stderr if json_path == "-" else sys.stdout,
            )
