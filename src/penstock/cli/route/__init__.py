"""`penstock route`: how requests for `model: "auto"` find their tier, what it saves, and why.

One file for each command; a command is registered here by one line. Knows the terminal, and
reads what `aio` and the store offer; must not decide anything itself.
"""

from __future__ import annotations

import typer

from penstock.cli.route import eval as eval_
from penstock.cli.route import explain, export, forget, replay, report, train

app = typer.Typer(
    help="The router: train it, judge it, ask it why, and read its books.",
    epilog='[dim]Start here:[/dim] penstock route explain "What is the capital of France?"',
    no_args_is_help=True,
    rich_markup_mode="rich",
)

app.command(epilog=explain.EPILOG)(explain.explain)
app.command(epilog=train.EPILOG)(train.train)
app.command(epilog=replay.EPILOG)(replay.replay)
app.command(epilog=report.EPILOG)(report.report)
app.command("eval", epilog=eval_.EPILOG)(eval_.evaluate)
app.command(epilog=export.EPILOG)(export.export)
app.command(epilog=forget.EPILOG)(forget.forget)
