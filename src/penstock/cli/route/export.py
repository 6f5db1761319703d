"""`penstock route export`: verdicts whose text was kept, for training and judging a router."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import examples
from penstock.cli.route.days import begins, read_day
from penstock.cli.state import Config, StateDir, open_state, state_settings
from penstock.errors import ConfigError

EPILOG = examples(
    ("penstock route export --out mine.jsonl", "what was kept, to a new file for your eyes only"),
    ("penstock route train --data mine.jsonl --out mine.npz", "a router that has learned from it"),
    ("penstock route export --since 2026-01-01 | head -1", "to the terminal"),
)
_NOTHING = (
    "Nothing was kept; texts of checked answers are kept for tenants with `keep_text: true` "
    "(tenants.NAME.keep_text in penstock.yaml)."
)


def export(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="A file that does not exist yet; otherwise the terminal."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="DAY", help="Only from this day on (UTC).", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say in JSON what was written to --out.")] = False,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Write the verdicts whose text was kept, a line of JSON for each: what `train` and `eval` read."""
    from penstock.gateway.store.verdicts import VerdictTable

    if as_json and out is None:
        raise ConfigError("--json says what was written to a file; name one with --out, or leave it out.")
    first = 0.0 if since is None else begins(read_day("--since", since))
    with open_state(state_settings(state_dir, config), create=False) as database:
        rows = iter(()) if database is None else VerdictTable(database).export(first)
        start = next(rows, None)
        # Without rows there is no file: training on an empty one would fail later, and less clearly.
        count = 0 if start is None else _write(out, itertools.chain([start], rows))
    if as_json:
        print(json.dumps({"rows": count, "out": str(out) if count else None}))
    elif count:
        print(f"Wrote {count:,} verdicts{'' if out is None else f' to {out}'}.", file=sys.stderr)
    if not count:
        print(_NOTHING, file=sys.stderr)


def _write(out: Path | None, rows: Iterable[bytes]) -> int:
    """How many there were. The file is for its owner alone: it holds what users have asked."""
    if out is None:
        lines = (row.decode() for row in rows)
        return sum(1 for _ in map(print, lines))
    try:
        with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            return sum(1 for row in rows if file.write(row + b"\n"))
    except FileExistsError:
        raise ConfigError(f"{out} exists already; remove it, or choose another name with --out.") from None
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror or error}.") from None
