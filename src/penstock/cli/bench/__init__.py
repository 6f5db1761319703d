"""`penstock bench`: measure the engine in this process, or any OpenAI-compatible server.

One file for each command; a command is registered here by one line. Knows the terminal and hands
the work to `penstock.bench`; must not compute a figure itself.
"""

from __future__ import annotations

import typer

from penstock.cli.bench import compare, embed, offline, quality, serve, sweep

app = typer.Typer(
    help="Measure the engine in this process, or any OpenAI-compatible server.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

app.command(epilog=offline.EPILOG)(offline.offline)
app.command(epilog=serve.EPILOG)(serve.serve)
app.command(epilog=sweep.EPILOG)(sweep.sweep)
app.command("compare", epilog=compare.EPILOG)(compare.compare_command)
app.command(epilog=embed.EPILOG)(embed.embed)
app.command(epilog=quality.EPILOG)(quality.quality)
