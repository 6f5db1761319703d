"""What the measurements share: options, and where their results go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from penstock.errors import ConfigError

Repeat = Annotated[
    int, typer.Option("--repeat", "-r", metavar="N", min=1, help="Runs of each; the median is shown.")
]
Salt = Annotated[
    str | None,
    typer.Option(
        "--salt", metavar="TEXT", help="The same salt gives the same prompts.", show_default="random"
    ),
]
Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write everything as JSON; '-' is stdout.")
]
ShowCeilings = Annotated[
    bool, typer.Option("--ceilings/--no-ceilings", help="Measure what the hardware could do at best.")
]


def write(content: dict[str, Any], json_path: str | None) -> None:
    text = json.dumps(content, indent=2)
    if json_path == "-":
        print(text)
    elif json_path:
        Path(json_path).write_text(text + "\n", encoding="utf-8")


def check_url(url: str) -> str:
    """The host that a URL names."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--url must be an address such as http://127.0.0.1:8000, got {url!r}.")
    return parts.hostname


def check_writable(json_path: str | None) -> None:
    """Before an hour of measuring, not after."""
    if json_path in (None, "-"):
        return
    try:
        with open(json_path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise ConfigError(f"--json names {json_path}, which cannot be written: {error.strerror}.") from None


def without_keys(arguments: list[str]) -> list[str]:
    """The command as it may be published."""
    shown = list(arguments)
    for number, argument in enumerate(shown):
        if argument == "--api-key" and number + 1 < len(shown):
            shown[number + 1] = "..."
        elif argument.startswith("--api-key="):
            shown[number] = "--api-key=..."
    return shown
