"""`penstock observe rules`: alert rules for Prometheus, by what the configuration promises."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.observe.output import write
from penstock.cli.options import examples
from penstock.cli.state import Config
from penstock.config import load_settings

EPILOG = examples(
    ("penstock observe rules", "for the objectives of penstock.yaml, or the usual ones, on the screen"),
    ("penstock observe rules --output /etc/prometheus/penstock.rules.yml", "for rule_files of Prometheus"),
    ("penstock observe rules --json | jq '.groups[].rules[].alert'", "for scripts"),
)


def rules(
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
    config: Config = None,
) -> None:
    """Make alert rules for Prometheus from the objectives of a configuration."""
    from penstock.observe.alerts.rules import document, render
    from penstock.observe.objectives import Promises

    promises = Promises(load_settings({}, config=config).gateway)
    write(json.dumps(document(promises), indent=2) + "\n" if as_json else render(promises), output)
