"""`penstock bench offline`."""

from __future__ import annotations

import secrets
import sys
from dataclasses import asdict
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
    check_writable,
    chosen_workloads,
    progress,
    show,
)
from penstock.cli.options import ENGINE_OPTIONS, configured, engine_options, examples
from penstock.cli.pull import fetched
from penstock.config import Settings

if TYPE_CHECKING:
    from penstock.bench.statistics import Run

EPILOG = examples(
    ("penstock bench offline --compare-static", "64 mixed requests, continuous against static batching"),
    ("penstock bench offline -w W1 -w W4 --json bench.json", "two workloads, also as JSON"),
    ("penstock bench offline --requests 8 --input-len 100-200 --output-len 50", "a workload of one's own"),
)


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
    html_path: Html = None,
    price_per_hour: PricePerHour = None,
    ceilings: ShowCeilings = True,
) -> None:
    """Run the engine in this process, without HTTP."""
    chosen = chosen_workloads(workload, requests, input_len, output_len, prefix_len, clients)
    check_writable(json_path, html_path)
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
                with progress(f"{item.name} continuous", sum(job.output_len for job in jobs)) as tick:
                    runs.append(run_continuous(llm.engine, item, jobs, repeat=number, progress=tick))
                if compare_static:
                    jobs = item.jobs(repeat=number, salt=salt + "-static", vocab_size=info.vocab_size)
                    with progress(f"{item.name} static", sum(job.output_len for job in jobs)) as tick:
                        runs.append(
                            run_static(
                                llm.engine, item, jobs, batch_size=batch_size, repeat=number, progress=tick
                            )
                        )
    subject = {"model": settings.model, "salt": salt, **asdict(info)}
    if compare_static:
        subject["static_batch_size"] = batch_size
    show("offline", subject, runs, limits, json_path, html_path, price_per_hour)
