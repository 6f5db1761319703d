"""`penstock bench offline` and `penstock bench serve`; `penstock bench embed` is beside."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.bench import workloads
from penstock.bench.workloads import Workload
from penstock.cli import bench_embed
from penstock.cli.bench_common import (
    Json,
    Repeat,
    Salt,
    ShowCeilings,
    check_url,
    check_writable,
    without_keys,
    write,
)
from penstock.cli.options import ENGINE_OPTIONS, configured, engine_options, examples
from penstock.cli.pull import fetched
from penstock.config import Settings
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.bench.ceilings import Ceilings
    from penstock.bench.statistics import Run

app = typer.Typer(
    help="Measure the engine in this process, or any OpenAI-compatible server.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
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
OFFLINE_EPILOG = examples(
    ("penstock bench offline --compare-static", "64 mixed requests, continuous against static batching"),
    ("penstock bench offline -w W1 -w W4 --json bench.json", "two workloads, also as JSON"),
    ("penstock bench offline --requests 8 --input-len 100-200 --output-len 50", "a workload of one's own"),
)
SERVE_EPILOG = examples(
    ("penstock bench serve --url http://127.0.0.1:8000 -w W3 -r 3", "16 clients, the median of three runs"),
    (
        "penstock bench serve --url http://127.0.0.1:8000 --endpoint chat --requests 100 --clients 10",
        "chat, closed loop",
    ),
)


@app.command(epilog=OFFLINE_EPILOG)
@configured(*ENGINE_OPTIONS)
def offline(
    settings: Settings,
    workload: Names = None,
    requests: Requests = None,
    input_len: InputLen = None,
    output_len: OutputLen = None,
    prefix_len: PrefixLen = None,
    clients: Clients = None,
    compare_static: Annotated[
        bool, typer.Option("--compare-static", help="Also run static batching on the same engine.")
    ] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="N", min=1, help="Requests in a static batch.")
    ] = 16,
    repeat: Repeat = 1,
    salt: Salt = None,
    json_path: Json = None,
    ceilings: ShowCeilings = True,
) -> None:
    """Run the engine in this process, without HTTP."""
    chosen = _chosen(workload, requests, input_len, output_len, prefix_len, clients)
    check_writable(json_path)
    from penstock.bench.ceilings import measure
    from penstock.bench.offline import run_continuous, run_static, warm_up
    from penstock.llm import LLM

    salt = salt or secrets.token_hex(4)
    runs: list[Run] = []
    files = fetched(settings.model)
    print(f"Loading {files.name} ...", file=sys.stderr)
    with LLM(str(files.path), **engine_options(settings)) as llm:
        info = llm.engine.info
        limits = measure(info.device, settings.threads) if ceilings else None
        warm_up(llm.engine, vocab_size=info.vocab_size)
        for item in chosen:
            for number in range(repeat):
                jobs = item.jobs(repeat=number, salt=salt, vocab_size=info.vocab_size)
                with _progress(f"{item.name} continuous", sum(job.output_len for job in jobs)) as tick:
                    runs.append(run_continuous(llm.engine, item, jobs, repeat=number, progress=tick))
                if compare_static:
                    jobs = item.jobs(repeat=number, salt=salt + "-static", vocab_size=info.vocab_size)
                    with _progress(f"{item.name} static", sum(job.output_len for job in jobs)) as tick:
                        runs.append(
                            run_static(
                                llm.engine, item, jobs, batch_size=batch_size, repeat=number, progress=tick
                            )
                        )
    subject = {"model": settings.model, "salt": salt, **asdict(info)}
    if compare_static:
        subject["static_batch_size"] = batch_size
    _show("offline", subject, runs, limits, json_path)


@app.command("serve", epilog=SERVE_EPILOG)
def online(
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="The server to measure.")
    ] = "http://127.0.0.1:8000",
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="Model name.", show_default="the first it lists"),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", metavar="KEY", help="Key for the server; OPENAI_API_KEY otherwise."),
    ] = None,
    endpoint: Annotated[
        str,
        typer.Option(
            "--endpoint", metavar="NAME", help="completions (exact token ids) or chat (about as many words)."
        ),
    ] = "completions",
    ignore_eos: Annotated[
        bool,
        typer.Option("--ignore-eos/--no-ignore-eos", help="Ask for answers of exactly the wanted length."),
    ] = True,
    workload: Names = None,
    requests: Requests = None,
    input_len: InputLen = None,
    output_len: OutputLen = None,
    prefix_len: PrefixLen = None,
    clients: Clients = None,
    repeat: Repeat = 1,
    salt: Salt = None,
    json_path: Json = None,
    ceilings: ShowCeilings = True,
) -> None:
    """Load a running server over HTTP, streaming, as its users do."""
    chosen = _chosen(workload, requests, input_len, output_len, prefix_len, clients)
    check_writable(json_path)
    host = check_url(url)
    if endpoint not in ("completions", "chat"):
        raise ConfigError(f"--endpoint must be completions or chat, got {endpoint!r}.")
    from penstock.bench.ceilings import measure
    from penstock.bench.online import Target, first_model, run_online

    key = api_key or os.environ.get("OPENAI_API_KEY")
    base = url.rstrip("/").removesuffix("/v1")
    name = model or asyncio.run(first_model(base, key))
    target = Target(url=base, model=name, endpoint=endpoint, api_key=key, ignore_eos=ignore_eos)  # type: ignore[arg-type]
    # Another machine's ceilings cannot be measured from here.
    here = host in ("127.0.0.1", "localhost", "::1")
    limits = measure() if ceilings and here else None
    salt = salt or secrets.token_hex(4)
    runs: list[Run] = []
    for item in chosen:
        for number in range(repeat):
            jobs = item.jobs(repeat=number, salt=salt)
            with _progress(item.name, sum(job.output_len for job in jobs)) as tick:
                runs.append(asyncio.run(run_online(target, item, jobs, repeat=number, progress=tick)))
    subject = {"url": base, "model": name, "endpoint": endpoint, "salt": salt}
    _show("online", subject, runs, limits, json_path)
    if any(run.errors for run in runs):
        raise typer.Exit(1)


app.command("embed", epilog=bench_embed.EPILOG)(bench_embed.embed)


def _chosen(
    names: list[str] | None,
    requests: int | None,
    input_len: str | None,
    output_len: str | None,
    prefix_len: int | None,
    clients: int | None,
) -> list[Workload]:
    wanted: list[str | None] = [*names] if names else [None]
    return [
        workloads.choose(
            name,
            requests=requests,
            input_len=input_len,
            output_len=output_len,
            prefix_len=prefix_len,
            clients=clients,
        )
        for name in wanted
    ]


@contextmanager
def _progress(title: str, tokens: int) -> Iterator[Callable[[int], None]]:
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


def _show(
    kind: str, subject: dict[str, Any], runs: list[Run], limits: Ceilings | None, json_path: str | None
) -> None:
    from rich.console import Console

    from penstock.bench.report import report, tables

    command = ["penstock", *without_keys(sys.argv[1:])]
    content = report(kind=kind, command=command, subject=subject, runs=runs, ceilings=limits)
    # With JSON on stdout, people read stderr.
    console = Console(stderr=json_path == "-", highlight=False)
    for table in tables(content, runs):
        console.print(table)
    write(content, json_path)
