"""`penstock usage`: what the ledger says, in exact totals."""

from __future__ import annotations

import csv
import json
import re
import sys
from calendar import monthrange
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import examples
from penstock.cli.state import Config, StateDir, open_state, state_settings
from penstock.cli.table import table
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.gateway.store import Tally, UsageRow
    from penstock.gateway.store.usage import Part

EPILOG = examples(
    ("penstock usage", "this month, by tenant and model"),
    ("penstock usage --month 2026-01 --by tenant", "one line for each tenant's bill"),
    ("penstock usage --tenant acme --by day,model --since 2026-01-01 --until 2026-01-07", "a week, by day"),
    ("penstock usage --by tenant,model,day --csv > usage.csv", "for a spreadsheet"),
)
_MONTH = re.compile(r"\d{4}-\d{2}")


def usage(
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant.", show_default=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="NAME", help="Only this model.", show_default=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DAY", help="From this day on (UTC).", show_default=False)
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="DAY", help="Up to and including this day.", show_default=False),
    ] = None,
    month: Annotated[
        str | None,
        typer.Option(
            "--month",
            metavar="YYYY-MM",
            help="One calendar month. [dim]Default: this one.[/dim]",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="PARTS", help="A line for each: tenant, model, day, or several.")
    ] = "tenant,model",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Show what was used and what it cost, by tenant, model and day."""
    from penstock.gateway.store import UsageTable
    from penstock.gateway.store.usage import total

    if as_json and as_csv:
        raise ConfigError("--json and --csv exclude each other; keep one of them.")
    parts = _parts(by)
    first, last = _period(since, until, month)
    wanted = {"tenant": tenant, "model": model, "since": first, "until": last}
    with open_state(state_settings(state_dir, config), create=False) as database:
        rows = [] if database is None else UsageTable(database).totals(parts, **wanted)
    if as_json:
        print(json.dumps(_as_json(rows, parts, first, last), indent=2, ensure_ascii=False))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow([*parts, *_NUMBERS])
        writer.writerows(_cells(row, parts) for row in rows)
    elif not rows:
        print(f"Nothing was used {_said(first, last)}.", file=sys.stderr)
    else:
        print(f"Used {_said(first, last)} (days in UTC):\n")
        body = [(*(getattr(row, part) for part in parts), *_shown(row.tally)) for row in rows]
        if len(rows) > 1:
            body.append(("TOTAL", *[""] * (len(parts) - 1), *_shown(total(rows))))
        heads = [*(part.upper() for part in parts), *_HEADS]
        print(table(heads, body, numbers=len(_HEADS)))


_HEADS = ("REQUESTS", "OK", "ABORTED", "FAILED", "REFUSED", "PROMPT", "CACHED", "ANSWER", "SAVED", "COST")
_NUMBERS = (
    "requests",
    "ok",
    "aborted",
    "failed",
    "refused",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "saved_tokens",
    "cost_usd",
)


def _counts(tally: Tally) -> tuple[int, ...]:
    outcomes = (tally.requests, tally.ok, tally.aborted, tally.failed, tally.refused)
    return (*outcomes, tally.prompt, tally.cached, tally.completion, tally.saved)


def _shown(tally: Tally) -> tuple[str, ...]:
    from penstock.gateway.accounts.price import shown

    return (*(f"{count:,}" for count in _counts(tally)), shown(tally.cost))


def _cells(row: UsageRow, parts: Sequence[Part]) -> list[str | int]:
    return [*(getattr(row, part) for part in parts), *_counts(row.tally), _dollars(row.tally)]


def _dollars(tally: Tally) -> str:
    """All the digits: a float would lose some."""
    from penstock.gateway.accounts.price import shown

    return shown(tally.cost).replace("$", "").replace(",", "")


def _numbers(tally: Tally) -> dict[str, object]:
    return dict(zip(_NUMBERS, (*_counts(tally), _dollars(tally)), strict=True))


def _as_json(
    rows: Sequence[UsageRow], parts: Sequence[Part], first: str | None, last: str | None
) -> dict[str, object]:
    from penstock.gateway.store.usage import total

    return {
        "since": first,
        "until": last,
        "rows": [{**{part: getattr(row, part) for part in parts}, **_numbers(row.tally)} for row in rows],
        "total": _numbers(total(rows)),
    }


def _said(first: str | None, last: str | None) -> str:
    bounds = [f"from {first}" if first else "", f"until {last}" if last else ""]
    return " ".join(bound for bound in bounds if bound)


def _parts(text: str) -> tuple[Part, ...]:
    from penstock.gateway.store.usage import PARTS

    named = dict.fromkeys(part.strip() for part in text.split(","))
    parts = tuple(known for part in named for known in PARTS if known == part)
    if not parts or len(parts) != len(named):
        raise ConfigError(f"--by must be one or several of {', '.join(PARTS)}, got {text[:64]!r}.")
    return parts


def _period(since: str | None, until: str | None, month: str | None) -> tuple[str | None, str | None]:
    """The first and the last day; None is no bound."""
    if month is not None and (since is not None or until is not None):
        raise ConfigError("--month names a whole month; leave it out, or --since and --until.")
    if since is None and until is None:
        return _days_of(month or datetime.now(UTC).strftime("%Y-%m"))
    first = None if since is None else _day("--since", since)
    last = None if until is None else _day("--until", until)
    if first is not None and last is not None and first > last:
        raise ConfigError(f"--since {first} is after --until {last}; swap them.")
    return first, last


def _days_of(month: str) -> tuple[str, str]:
    try:
        if not _MONTH.fullmatch(month):
            raise ValueError
        first = date.fromisoformat(f"{month}-01")
    except ValueError:
        raise ConfigError(f"--month must be a month such as 2026-01, got {month[:64]!r}.") from None
    return first.isoformat(), first.replace(day=monthrange(first.year, first.month)[1]).isoformat()


def _day(flag: str, text: str) -> str:
    try:
        if len(text) != len("2026-01-31"):
            raise ValueError
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ConfigError(f"{flag} must be a day such as 2026-01-31, got {text[:64]!r}.") from None
