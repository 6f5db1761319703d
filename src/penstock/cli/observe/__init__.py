"""`penstock observe`: what Prometheus and Grafana need to watch a server, made from its configuration.

One file for each command. Knows the terminal and files; what is made comes from `observe`.
"""

from __future__ import annotations

import typer

from penstock.cli.observe import dashboards, metrics, rules

app = typer.Typer(
    help="Alert rules for Prometheus, dashboards for Grafana, and the list of metrics.",
    epilog="[dim]Start here:[/dim] penstock observe rules --output penstock.rules.yml",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

app.command(epilog=rules.EPILOG)(rules.rules)
app.command(epilog=dashboards.EPILOG)(dashboards.dashboards)
app.command(epilog=metrics.EPILOG)(metrics.metrics)
