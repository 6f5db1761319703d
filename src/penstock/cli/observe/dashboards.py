"""`penstock observe dashboards`: dashboards for Grafana."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.observe.output import write
from penstock.cli.options import examples
from penstock.cli.table import table
from penstock.errors import ConfigError

EPILOG = examples(
    ("penstock observe dashboards", "which there are"),
    ("penstock observe dashboards --output /var/lib/grafana/dashboards", "a file for each"),
    ("penstock observe dashboards --json | jq '.[\"penstock-gpu\"]'", "for scripts, or to import by hand"),
)


def dashboards(
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write them into this folder.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all as one JSON object, by name.")] = False,
) -> None:
    """List the dashboards for Grafana, or write them."""
    from penstock.observe.dashboards.boards import BOARDS

    if output is None and not as_json:
        counts = [str(sum(len(row.panels) for row in board.rows)) for board in BOARDS]
        rows = [(board.name, board.help, count) for board, count in zip(BOARDS, counts, strict=True)]
        print(table(("NAME", "SHOWS", "PANELS"), rows, numbers=1))
        return
    try:
        from penstock.observe.dashboards.build import render
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "grafana_foundation_sdk":
            raise
        raise ConfigError(
            "Dashboards are made by Grafana's own builder: install penstock[dashboards], or take those that "
            "are in deploy/grafana/dashboards of the source."
        ) from None
    made = {board.name: render(board) for board in BOARDS}
    if output is not None:
        for name, text in made.items():
            write(text, str(Path(output) / f"{name}.json"))
    if as_json:
        write(json.dumps({name: json.loads(text) for name, text in made.items()}, indent=2) + "\n", None)
