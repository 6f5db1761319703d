"""The sampling flags that `chat` and `complete` share."""

from __future__ import annotations

from typing import Annotated

import typer

PANEL = "Sampling"

MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", "-n", metavar="N", help="Longest answer, in tokens.", rich_help_panel=PANEL),
]
Temperature = Annotated[
    float,
    typer.Option(
        "--temperature",
        "-t",
        metavar="X",
        help="0 takes the likeliest token; up to 2.",
        rich_help_panel=PANEL,
    ),
]
TopP = Annotated[
    float,
    typer.Option(
        "--top-p",
        metavar="X",
        help="Sample among the likeliest tokens that sum to this.",
        rich_help_panel=PANEL,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="The same seed gives the same answer.", rich_help_panel=PANEL),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        "--stop", metavar="TEXT", help="End the answer at this text; may be repeated.", rich_help_panel=PANEL
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Ask this server instead of loading the model here.",
        rich_help_panel="Server",
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        help="Key for the server; OPENAI_API_KEY otherwise.",
        rich_help_panel="Server",
    ),
]
