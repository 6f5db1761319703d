"""The report of `bench embed`, as data and as tables."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.bench.ceilings import Ceilings
from penstock.bench.embedding import EmbedRun, gflops, speedups
from penstock.bench.machine import machine, versions

if TYPE_CHECKING:
    from rich.console import RenderableType

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def embed_report(
    *, command: Sequence[str], subject: dict[str, Any], runs: Sequence[EmbedRun], ceilings: Ceilings | None
) -> dict[str, Any]:
    return {
        "kind": "embed",
        "measured_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(command),
        "machine": machine(),
        "versions": versions(),
        "subject": subject,
        "ceilings": asdict(ceilings) if ceilings else None,
        "runs": [run.as_dict() for run in runs],
        "batched_over_one_by_one": speedups(runs),
    }


def embed_tables(content: dict[str, Any], runs: Sequence[EmbedRun]) -> Iterator[RenderableType]:
    from rich import box
    from rich.table import Table

    subject, ceilings = content["subject"], content["ceilings"]
    itemsize = _BYTES.get(subject.get("precision", ""))
    first = runs[0]
    title = f"{first.where}: {first.texts} texts, {first.tokens} tokens, median of {len(first.seconds)}"
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold", collapse_padding=True
    )
    table.add_column("mode", no_wrap=True)
    columns = ["seconds", "from - to", "texts/s", "tokens/s"]
    columns += ["GFLOP/s"] if itemsize else []
    columns += ["of ceiling"] if itemsize and ceilings else []
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for run in runs:
        row = [
            f"{run.median:.3f}",
            f"{min(run.seconds):.3f} - {max(run.seconds):.3f}",
            f"{run.texts / run.median:.0f}",
            f"{run.tokens / run.median:.0f}",
        ]
        if itemsize:
            reached = gflops(run, subject["weight_bytes"], itemsize)
            row.append(f"{reached:.0f}")
            if ceilings:
                row.append(f"{reached / ceilings['fp32_gflop_per_second']:.0%}")
        table.add_row(run.mode, *row)
    yield table
    for where, ratio in content["batched_over_one_by_one"].items():
        yield f"{where}: all at once is [bold]{ratio:.2f}x[/bold] as fast as one by one."
    if ceilings:
        yield (
            f"Ceiling of {ceilings['device']}, {ceilings['threads']} threads: "
            f"fp32 matmul {ceilings['fp32_gflop_per_second']:.0f} GFLOP/s."
        )
    host, version = content["machine"], content["versions"]["penstock"]
    yield f"{host['processor']}, {host['cores']} cores, {host['memory_gib']} GiB; penstock {version}"
