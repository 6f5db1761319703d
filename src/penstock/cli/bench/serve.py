"""`penstock bench serve`."""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.bench.common import (
    Clients,
    Html,
    InputLen,
    Json,
    Names,
    OutputLen,
    PrefixLen,
    PricePerHour,
    Repeat,
    Requests,
    Salt,
    ShowCeilings,
    check_url,
    check_writable,
    chosen_workloads,
    progress,
    show,
)
from penstock.cli.options import examples
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.bench.statistics import Run

EPILOG = examples(
    ("penstock bench serve --url http://127.0.0.1:8000 -w W3 -r 3", "16 clients, the median of three runs"),
    (
        "penstock bench serve --url http://127.0.0.1:8000 --endpoint chat --requests 100 --clients 10",
        "chat, closed loop",
    ),
)


def serve(
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
    html_path: Html = None,
    price_per_hour: PricePerHour = None,
    ceilings: ShowCeilings = True,
) -> None:
    """Load a running server over HTTP, streaming, as its users do."""
    chosen = chosen_workloads(workload, requests, input_len, output_len, prefix_len, clients)
    check_writable(json_path, html_path)
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
            with progress(item.name, sum(job.output_len for job in jobs)) as tick:
                runs.append(asyncio.run(run_online(target, item, jobs, repeat=number, progress=tick)))
    subject = {"url": base, "model": name, "endpoint": endpoint, "salt": salt}
    show("serve", subject, runs, limits, json_path, html_path, price_per_hour)
    if any(run.errors for run in runs):
        raise typer.Exit(1)
