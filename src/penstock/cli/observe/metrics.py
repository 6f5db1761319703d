"""`penstock observe metrics`: every metric that a server exports."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from penstock.cli.observe.output import write
from penstock.cli.options import examples
from penstock.cli.table import table

EPILOG = examples(
    ("penstock observe metrics", "name, kind, labels and meaning of each"),
    (
        "penstock observe metrics --json | jq '.[] | select(.kind == \"histogram\")'",
        "with the bounds of buckets",
    ),
)


def metrics(
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """List the metrics of /metrics, from the catalogue that the server uses."""
    from penstock.observe.catalogue import specs

    found = list(specs().values())
    names = [f"{spec.name}_total" if spec.kind == "counter" else spec.name for spec in found]
    if as_json:
        listed = [{**dataclasses.asdict(spec), "name": name} for name, spec in zip(names, found, strict=True)]
        text = json.dumps(listed, indent=2, ensure_ascii=False)
    else:
        rows = [
            (name, spec.kind, ",".join(spec.labels), spec.help)
            for name, spec in zip(names, found, strict=True)
        ]
        text = table(("NAME", "KIND", "LABELS", "MEANING"), rows)
    write(text + "\n", output)
