"""`penstock bench embed`."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from penstock.bench import workloads
from penstock.bench.workloads import Workload
from penstock.cli.bench.common import (
    Html,
    Json,
    Repeat,
    Salt,
    ShowCeilings,
    check_url,
    check_writable,
    progress,
    publish,
    published_command,
    refuse_engine_options,
)
from penstock.cli.bench.load import INTERRUPTED, Interruption, base_url
from penstock.cli.options import ENGINE_OPTIONS, configured, engine_options, examples
from penstock.cli.pull import fetched
from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.hub.known import EMBEDDING

EPILOG = examples(
    ("penstock bench embed", "256 short texts, one by one and all at once, in this process"),
    ("penstock bench embed --url http://127.0.0.1:8000", "the same at a server"),
)
SMALLEST_VOCABULARY = 30_000  # of the encoders in use; ids beyond it might be refused


@configured(*ENGINE_OPTIONS)
def embed(
    settings: Settings,
    context: typer.Context,
    named: str | None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="A server to measure, instead of the engine here."),
    ] = None,
    texts: Annotated[
        int, typer.Option("--texts", metavar="N", min=2, max=2048, help="Number of texts.")
    ] = 256,
    input_len: Annotated[
        str, typer.Option("--input-len", metavar="N|A-B", help="Tokens of a text, or a range.")
    ] = "4-12",
    repeat: Repeat = 5,
    salt: Salt = None,
    json_path: Json = None,
    html_path: Html = None,
    ceilings: ShowCeilings = True,
) -> None:
    """Embed texts one by one and all at once, in this process or at a server."""
    if url is not None:
        refuse_engine_options(context)
    lengths = workloads.length_range("input-len", input_len)
    check_writable(json_path, html_path)
    from penstock.bench.ceilings import measure
    from penstock.bench.embed_report import embed_fields
    from penstock.bench.embedding import planned_tokens, run_engine, run_http
    from penstock.bench.report import frame
    from penstock.bench.target import Target, first_model

    workload = Workload(name="embed", requests=texts, input_len=lengths, output_len=(1, 1))
    salt = salt or secrets.token_hex(4)
    subject: dict[str, Any] = {"salt": salt, "texts": texts, "input_len": lengths}
    if url is not None:
        check_url(url)
        base = base_url(url)
        key = os.environ.get("OPENAI_API_KEY")
        target = Target(url=base, model=named or asyncio.run(first_model(base, key)), api_key=key)
        limits = None
        # Ids that small vocabularies have too; what is sent is not what a server can tell us.
        jobs = workload.jobs(salt=salt, vocab_size=SMALLEST_VOCABULARY)
        prompts = [job.prompt for job in jobs]
        with Interruption() as stop, progress("Embedding", planned_tokens(prompts, repeat)) as tick:
            runs = asyncio.run(run_http(target, prompts, repeat=repeat, progress=tick, stop=stop))
        subject |= {"url": base, "model": target.model}
    else:
        from penstock.llm import LLM

        chosen = EMBEDDING.names[0] if settings.model == "default" else settings.model
        files = fetched(chosen)
        print(f"Loading {files.name} ...", file=sys.stderr)
        with LLM(str(files.path), **engine_options(settings)) as llm:
            info = llm.engine.info
            if "embed" not in info.tasks:
                raise ConfigError(f"{files.name} gives no vectors; choose another model, or --pooling mean.")
            limits = measure(info.device, settings.threads) if ceilings else None
            jobs = workload.jobs(salt=salt, vocab_size=info.vocab_size)
            prompts = [job.prompt for job in jobs]
            with Interruption() as stop, progress("Embedding", planned_tokens(prompts, repeat)) as tick:
                runs = run_engine(llm.engine, prompts, info.pooling, repeat=repeat, progress=tick, stop=stop)
        subject |= {"model": files.name, **asdict(info)}
    if not runs:  # stopped before the end of the first repeat
        print("Nothing was measured.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    content = frame("embed", published_command(), subject, limits) | embed_fields(runs)
    publish(content, json_path, html_path)
    if stop():
        raise typer.Exit(INTERRUPTED)
