"""`penstock bench sweep`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.bench.memory import MemorySampler
from penstock.bench.progress import Progress
from penstock.bench.slo import parse_slo
from penstock.bench.statistics import Run, median_run
from penstock.bench.sweep import load_words, make_series, sentence
from penstock.bench.workloads import Job, Workload
from penstock.cli.bench.common import (
    Repeat,
    is_here,
    refuse_engine_options,
    refuse_given,
)
from penstock.cli.bench.groups import Connection, Measuring, grouped_options
from penstock.cli.bench.load import (
    Interruption,
    Pid,
    Slo,
    base_url,
    check_pid,
    check_something_measured,
    leave,
    live,
    run_async,
)
from penstock.cli.options import ENGINE_OPTIONS, configured, engine_options, examples
from penstock.cli.pull import fetched
from penstock.config import Settings

if TYPE_CHECKING:
    from penstock.bench.ceilings import Ceilings
    from penstock.bench.target import Target

EPILOG = examples(
    ("penstock bench sweep", "the engine in this process, clients doubled until it gives no more"),
    ("penstock bench sweep --concurrency 1,4,16 --input-len 128,1024", "loads and lengths of one's own"),
    ("penstock bench sweep --url http://127.0.0.1:8000 --rate 1,2,4,8", "a server, open loop"),
)
LOADS = "Loads"
OF_SERVERS = {field.name for field in fields(Connection)} | {"pid"}
ROW = "{:>12} {:>8} {:>10} {:>8} {:>10} {:>10} {:>7}"


@configured(*ENGINE_OPTIONS)
@grouped_options
def sweep(
    settings: Settings,
    *,
    context: typer.Context,
    named: str | None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="A server to measure, instead of the engine here."),
    ] = None,
    connection: Connection,
    pid: Pid = None,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency",
            metavar="N,N,...",
            help="Requests in flight: clients of a server, the batch size of an engine.",
            show_default="1, doubled until saturation",
            rich_help_panel=LOADS,
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="R,R,...",
            help="Requests a second instead, as a Poisson process (open loop).",
            rich_help_panel=LOADS,
        ),
    ] = None,
    input_len: Annotated[
        str,
        typer.Option(
            "--input-len", metavar="N,A-B,...", help="Prompt tokens, or ranges.", rich_help_panel=LOADS
        ),
    ] = "128",
    output_len: Annotated[
        str,
        typer.Option(
            "--output-len", metavar="N,A-B,...", help="Output tokens, or ranges.", rich_help_panel=LOADS
        ),
    ] = "64",
    prefix_len: Annotated[
        int,
        typer.Option(
            "--prefix-len",
            metavar="N",
            min=0,
            help="Tokens that all prompts share, beside their own.",
            rich_help_panel=LOADS,
        ),
    ] = 0,
    requests: Annotated[
        int | None,
        typer.Option(
            "--requests",
            metavar="N",
            min=1,
            help="Requests of each load.",
            show_default="four for each client, or ten seconds of them",
            rich_help_panel=LOADS,
        ),
    ] = None,
    slo: Slo = None,
    repeat: Repeat = 1,
    measuring: Measuring,
) -> None:
    """Raise the load until the engine, or a server, gives no more."""
    if url is None:
        refuse_given(context, OF_SERVERS, "is for a server; without --url the engine here is measured.")
    else:
        refuse_engine_options(context)
    plan = make_series(
        concurrency=concurrency,
        rate=rate,
        input_len=input_len,
        output_len=output_len,
        prefix_len=prefix_len,
        requests=requests,
    )
    limits_of_answers = parse_slo(slo) if slo is not None else None
    connection.check()
    salt = measuring.begin()
    runs: list[Run] = []
    with Interruption() as stop, ExitStack() as stack:
        if url is None:
            place = _engine(stack, settings, measuring.ceilings, limits_of_answers, stop)
        else:
            check_pid(pid)
            ceilings = is_here(url) and measuring.ceilings
            target = connection.target(base_url(url), named)
            place = _server(target, pid, ceilings, limits_of_answers, stop)
        found: list[str] = []
        for series in plan:
            points: list[Run] = []  # the median run of each load
            while not stop() and (load := series.next_load(points)) is not None:
                again = _repeats(series.at(load), repeat, salt, place, stop)
                points.append(median_run(again))
                _print_row(points[-1], first=not runs)
                runs += again
            found.append(sentence(series, points))
    check_something_measured(runs, stop)
    subject = {**place.subject, "salt": salt, "saturation": found}
    measuring.show("sweep", subject, runs, place.limits)
    for line in found:
        print(line, file=sys.stderr if measuring.json_path == "-" else sys.stdout)
    leave(runs, stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What is loaded: the engine here, or a server."""

    measure: Callable[[Workload, list[Job], int, Progress], Run]
    subject: dict[str, Any]
    limits: Ceilings | None
    pid: int | None
    vocab_size: int | None = None


def _engine(
    stack: ExitStack,
    settings: Settings,
    ceilings: bool,
    slo: dict[str, float] | None,
    stop: Callable[[], bool],
) -> _Place:
    from penstock.bench.ceilings import measure
    from penstock.bench.offline import run_continuous, warm_up
    from penstock.llm import LLM

    files = fetched(settings.model)
    print(f"Loading {files.name} ...", file=sys.stderr)
    llm = stack.enter_context(LLM(str(files.path), **engine_options(settings)))
    info = llm.engine.info
    warm_up(llm.engine, vocab_size=info.vocab_size)

    def run(workload: Workload, jobs: list[Job], number: int, counts: Progress) -> Run:
        return run_continuous(
            llm.engine, workload, jobs, repeat=number, mode="sweep", slo=slo, progress=counts, stop=stop
        )

    return _Place(
        measure=run,
        subject={"model": settings.model, **asdict(info)},
        limits=measure(info.device, settings.threads) if ceilings else None,
        pid=os.getpid(),
        vocab_size=info.vocab_size,
    )


def _server(
    target: Target, pid: int | None, ceilings: bool, slo: dict[str, float] | None, stop: Callable[[], bool]
) -> _Place:
    from penstock.bench.ceilings import measure
    from penstock.bench.online import run_online

    def run(workload: Workload, jobs: list[Job], number: int, counts: Progress) -> Run:
        return run_async(
            run_online(
                target, workload, jobs, repeat=number, mode="sweep", slo=slo, progress=counts, stop=stop
            )
        )

    return _Place(
        measure=run,
        subject={"url": target.url, "model": target.model, "endpoint": target.endpoint},
        limits=measure() if ceilings else None,
        pid=pid,
    )


def _repeats(
    workload: Workload, repeat: int, salt: str, place: _Place, stop: Callable[[], bool]
) -> list[Run]:
    """Runs of one load; fewer than asked for after Ctrl-C, but one."""
    runs: list[Run] = []
    for number in range(repeat):
        if runs and stop():
            break
        # Other prompts for each load: none may find those of another in a prefix cache.
        key = f"{salt}/{workload.clients}/{workload.rate}"
        jobs = workload.jobs(repeat=number, salt=key, vocab_size=place.vocab_size)
        with (
            live(f"{workload.name} {load_words(workload)}", jobs) as counts,
            MemorySampler(place.pid) as memory,
        ):
            run = place.measure(workload, jobs, number, counts)
        runs.append(replace(run, peak_memory_bytes=memory.peak))
    return runs


def _print_row(run: Run, *, first: bool) -> None:
    """The table grows as loads are measured; the whole one, with more columns, comes at the end."""
    columns = ("lengths", "load", "out tok/s", "req/s", "TTFT p50", "e2e p99", "failed")
    if first:
        print(ROW.format(*columns), file=sys.stderr)
    failed = run.errors + run.timeouts + run.short
    load = f"{run.rate:g}/s" if run.rate is not None else f"{run.concurrency}"
    cells = (
        run.workload,
        load,
        f"{run.output_tokens_per_second:.1f}",
        f"{run.requests_per_second:.2f}",
        _time(run.ttft.p50),
        _time(run.e2e.p99),
        failed,
    )
    print(ROW.format(*cells), file=sys.stderr)


def _time(length: float | None) -> str:
    return "-" if length is None else f"{length * 1000:.0f} ms"
