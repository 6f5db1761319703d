"""`penstock route report`: what routing saved, net of what it cost, and how good the answers were."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import examples
from penstock.cli.route.days import begins, ends, read_day
from penstock.cli.route.money import dollars, percent
from penstock.cli.state import Config, StateDir, open_state, state_settings
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.aio.balance import Balance, Measured
    from penstock.aio.books import Tallies
    from penstock.gateway.store.verdicts import VerdictTally

EPILOG = examples(
    ("penstock route report", "this month: what was saved, the tiers, the quality"),
    ("penstock route report --by day --since 2026-01-01 --until 2026-01-07", "a week, day by day"),
    ("penstock route report --tenant acme --by tier --json", "one tenant's tiers, for scripts"),
)


def report(
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant.", show_default=False)
    ] = None,
    day: Annotated[
        str | None, typer.Option("--day", metavar="DAY", help="One day (UTC).", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="DAY",
            help="From this day on. [dim]Default: the first of this month.[/dim]",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="DAY", help="Up to and including this day.", show_default=False),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="PARTS", help="A line for each: tenant, day, tier, or several.")
    ] = "tenant",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Show what routing saved, net of classifier, cascade and monitor, and the quality beside it."""
    from penstock.aio.balance import Balance, balances, measured
    from penstock.cli.route import regions, tables
    from penstock.cli.route.learnt import Learnt, learnt_in
    from penstock.gateway.store.routes import RouteTable
    from penstock.gateway.store.verdicts import VerdictTable

    parts = _parts(by)
    first, last = _period(day, since, until)
    settings = state_settings(state_dir, config)
    with open_state(settings, create=False) as database:
        tallies: Tallies = {}
        verdicts: list[VerdictTally] = []
        learnt = Learnt()
        if database is not None:
            tallies = RouteTable(database).totals(tenant=tenant, since=first, until=last)
            since_at, until_at = begins(first) if first else 0.0, ends(last) if last else None
            verdicts = VerdictTable(database).tallies(since_at, until_at, tenant)
            learnt = learnt_in(database)
    kinds = regions.qualities(verdicts, learnt.promoted, settings.gateway.routing.monitor.threshold)
    days = balances(tallies)
    total = sum(days.values(), Balance())
    tiers = tables.by_tier(tallies)
    quality = measured(tiers.values())
    if as_json:
        found = {
            "since": first,
            "until": last,
            "rows": tables.rows_as_json(tallies, parts),
            "tiers": [{"tier": tier, **tables.tier_as_json(tally)} for tier, tally in tiers.items()],
            "regions": [kind.as_json() for kind in kinds],
            "total": tables.balance_as_json(total, quality),
            **learnt.as_json(),
        }
        print(json.dumps(found, indent=2, ensure_ascii=False))
    elif not tallies:
        print(f"Nothing was routed {_said(first, last)}.", file=sys.stderr)
    else:
        print(f"Routed {_said(first, last)} (days in UTC):\n")
        print(tables.books_table(tallies, parts, total, quality))
        if parts != ("tier",):
            print("\n" + tables.tier_table(tiers))
        if kinds:
            print("\n" + regions.region_table(kinds))
        print("\n" + "\n".join([*_sentences(total, quality), *learnt.sentences()]))


def _sentences(total: Balance, quality: Measured | None) -> list[str]:
    lines = [
        (
            f"Saved {dollars(total.net)} net ({percent(total.net, total.always_expert)} of always asking the "
            f"expert): {dollars(total.gross)} less {dollars(total.classifier)} for the classifier, "
            f"{dollars(total.cascade)} for discarded answers and {dollars(total.monitor)} for the monitor."
        ),
        (
            f"Against tiers by lot, at the same predicted quality: {dollars(total.net_of_mixture)} net "
            f"({percent(total.net_of_mixture, total.mixture)})."
        ),
    ]
    if quality is None:
        lines.append("Quality is as predicted: the monitor has no verdicts in this time.")
    if total.pinned:
        lines.append(
            f"{total.pinned:,} requests had their tier pinned ({dollars(total.pinned_cost)}); they are in no "
            "sum above."
        )
    if total.unanswered:
        lines.append(f"{total.unanswered:,} routed requests got no answer.")
    return lines


# ---------------------------------------------------------------- what was asked for


def _parts(text: str) -> tuple[str, ...]:
    from penstock.cli.route.tables import PARTS

    named = dict.fromkeys(part.strip() for part in text.split(","))
    if not set(named) <= set(PARTS):
        raise ConfigError(f"--by must be one or several of {', '.join(PARTS)}, got {text[:64]!r}.")
    return tuple(named)


def _period(day: str | None, since: str | None, until: str | None) -> tuple[str | None, str | None]:
    """The first and the last day; None is no bound."""
    if day is not None and (since is not None or until is not None):
        raise ConfigError("--day names one day; leave it out, or --since and --until.")
    if day is not None:
        return read_day("--day", day), read_day("--day", day)
    if since is None and until is None:
        return datetime.now(UTC).strftime("%Y-%m-01"), None
    first = None if since is None else read_day("--since", since)
    last = None if until is None else read_day("--until", until)
    if first is not None and last is not None and first > last:
        raise ConfigError(f"--since {first} is after --until {last}; swap them.")
    return first, last


def _said(first: str | None, last: str | None) -> str:
    if first is not None and first == last:
        return f"on {first}"
    bounds = [f"from {first}" if first else "", f"until {last}" if last else ""]
    return " ".join(bound for bound in bounds if bound)
