"""`penstock bench offline`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.bench.memory import MemorySampler
from penstock.bench.processes import process_age
from penstock.bench.workloads import Job, Workload
from penstock.cli.bench.common import (
    Repeat,
    refuse_given,
)
from penstock.cli.bench.groups import Measuring, Replay, Work, grouped_options
from penstock.cli.bench.load import (
    Interruption,
    check_something_measured,
    leave,
    live,
)
from penstock.cli.options import ENGINE_OPTIONS, configured, engine_options, examples
from penstock.cli.pull import fetched
from penstock.config import Settings
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.bench.statistics import Run

EPILOG = examples(
    ("penstock bench offline --compare-static", "64 mixed requests, continuous against static batching"),
    ("penstock bench offline -w W1 -w W4 --json bench.json", "two workloads, also as JSON"),
    ("penstock bench offline --requests 8 --input-len 100-200 --output-len 50", "a workload of one's own"),
    ("penstock bench offline --trace requests.jsonl --speed 2", "requests as they came, twice as fast"),
)


@configured(*ENGINE_OPTIONS)
@grouped_options
def offline(
    settings: Settings,
    *,
    context: typer.Context,
    work: Work,
    replay: Replay,
    compare_static: Annotated[
        bool, typer.Option("--compare-static", help="Also run static batching on the same engine.")
    ] = False,
    batch_size: Annotated[
        int, typer.Option("--batch-size", metavar="N", min=1, help="Requests in a static batch.")
    ] = 16,
    repeat: Repeat = 1,
    measuring: Measuring,
) -> None:
    """Run the engine in this process, without HTTP."""
    if not compare_static:
        refuse_given(context, ("batch_size",), "is of static batches; give --compare-static with it.")
    chosen = replay.or_work(work, context)
    limits_of_answers = work.limits()
    if compare_static and any(item.offered_rate is not None for item in chosen):
        raise ConfigError("--compare-static has all requests at the start; leave --rate and --trace out.")
    salt = measuring.begin()
    from penstock.bench.ceilings import measure
    from penstock.bench.offline import run_continuous, run_static, warm_up
    from penstock.llm import LLM

    runs: list[Run] = []
    files = fetched(settings.model)
    print(f"Loading {files.name} ...", file=sys.stderr)
    with LLM(str(files.path), **engine_options(settings)) as llm:
        info = llm.engine.info
        warm_up(llm.engine, vocab_size=info.vocab_size)
        startup = process_age(os.getpid())
        limits = measure(info.device, settings.threads) if measuring.ceilings else None

        def jobs_of(item: Workload, number: int, kind: str = "") -> list[Job]:
            jobs = item.jobs(repeat=number, salt=f"{salt}{kind}", vocab_size=info.vocab_size)
            return [
                job if job.text is None else replace(job, prompt=llm.tokenizer.encode(job.text))
                for job in jobs
            ]

        with Interruption() as stop:
            for item, number in ((item, number) for item in chosen for number in range(repeat)):
                for static in (False, True) if compare_static else (False,):
                    if stop():
                        break
                    jobs = jobs_of(item, number, "-static" if static else "")
                    title = f"{item.name} {'static' if static else 'continuous'}"
                    with live(title, jobs) as progress, MemorySampler(os.getpid()) as memory:
                        drive = partial(run_static, batch_size=batch_size) if static else run_continuous
                        run = drive(
                            llm.engine,
                            item,
                            jobs,
                            repeat=number,
                            slo=limits_of_answers,
                            progress=progress,
                            stop=stop,
                        )
                    runs.append(replace(run, peak_memory_bytes=memory.peak, startup_seconds=startup))
            check_something_measured(runs, stop)
            subject = {"model": settings.model, "salt": salt, **asdict(info)}
            if compare_static:
                subject["static_batch_size"] = batch_size
            measuring.show("offline", subject, runs, limits)
            leave(runs, stop)
