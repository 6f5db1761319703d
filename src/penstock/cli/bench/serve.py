"""`penstock bench serve`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.bench.memory import MemorySampler
from penstock.bench.slo import seconds
from penstock.cli.bench.common import (
    Repeat,
    is_here,
    refuse_given,
)
from penstock.cli.bench.groups import Connection, Measuring, Replay, Work, grouped_options
from penstock.cli.bench.load import (
    SERVER_PANEL,
    Interruption,
    Model,
    Pid,
    base_url,
    check_pid,
    check_something_measured,
    leave,
    live,
    run_async,
    say_lag,
)
from penstock.cli.options import examples
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.bench.statistics import Run

EPILOG = examples(
    ("penstock bench serve --url http://127.0.0.1:8000 -w W3 -r 3", "16 clients, the median of three runs"),
    ("penstock bench serve --endpoint chat --requests 100 --clients 10", "chat, closed loop"),
    (
        "penstock bench serve --rate 4 --requests 200 --slo ttft=500ms,tpot=50ms",
        "open loop, with an SLO",
    ),
    ("penstock bench serve --trace requests.jsonl --speed 2", "requests as they came, twice as fast"),
    (
        'penstock bench serve --server "penstock serve" -w W3',
        "starts the server itself",
    ),
)


@grouped_options
def serve(
    *,
    context: typer.Context,
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="The server to measure.", rich_help_panel=SERVER_PANEL)
    ] = "http://127.0.0.1:8000",
    model: Model = None,
    connection: Connection,
    pid: Pid = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="COMMAND",
            help="Start this server, measure its start-up and memory too, and end it afterwards.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = None,
    server_timeout: Annotated[
        str,
        typer.Option(
            "--server-timeout",
            metavar="TIME",
            help="For the first answer of a server that is started here.",
            rich_help_panel=SERVER_PANEL,
        ),
    ] = "5m",
    work: Work,
    replay: Replay,
    repeat: Repeat = 1,
    measuring: Measuring,
) -> None:
    """Load a running server over HTTP, streaming, as its users do."""
    if server is None:
        refuse_given(context, ("server_timeout",), "is for a server that --server starts; leave it out.")
    chosen = replay.or_work(work, context)
    limits_of_answers = work.limits()
    connection.check()
    patience = seconds("server-timeout", server_timeout)
    if pid is not None and server is not None:
        raise ConfigError("--server is measured by itself; give --pid only for a server that runs already.")
    check_pid(pid)
    salt = measuring.begin()
    # While a server starts, measuring ceilings would slow it.
    ceilings = is_here(url) and measuring.ceilings
    from penstock.bench.ceilings import measure
    from penstock.bench.online import run_online
    from penstock.bench.server import started

    base = base_url(url)
    limits = measure() if ceilings and server is not None else None
    runs: list[Run] = []
    with Interruption() as stop, ExitStack() as stack:
        startup = None
        if server is not None:
            begun = stack.enter_context(
                started(server, base, model=model, api_key=connection.key, patience=patience, stop=stop)
            )
            pid, model, startup = begun.pid, begun.model, begun.startup_seconds
        target = connection.target(base, model)
        if ceilings and server is None:
            limits = measure()
        for item, number in ((item, number) for item in chosen for number in range(repeat)):
            if stop():
                break
            jobs = item.jobs(repeat=number, salt=salt)
            with live(item.name, jobs) as progress, MemorySampler(pid) as memory:
                sending = run_online(
                    target, item, jobs, repeat=number, slo=limits_of_answers, progress=progress, stop=stop
                )
                run = run_async(sending)
            runs.append(replace(run, peak_memory_bytes=memory.peak, startup_seconds=startup))
    check_something_measured(runs, stop)
    subject = {"url": base, "model": target.model, "endpoint": target.endpoint, "salt": salt}
    if server is not None:
        subject["server"] = server
    measuring.show("serve", subject, runs, limits)
    say_lag(runs, measuring.json_path)
    leave(runs, stop)
