"""`penstock route forget`: what the monitor has kept of a tenant goes."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from penstock.cli.options import examples
from penstock.cli.state import Config, StateDir, open_state, state_settings
from penstock.errors import ConfigError

EPILOG = examples(
    ("penstock route forget acme", "after a question on the terminal"),
    ("penstock route forget acme --yes --json", "for scripts"),
)


def forget(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose verdicts go.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Delete all verdicts on a tenant's answers, with their vectors and the texts that were kept.

    The sums of the books stay, and so do predictors that have learned already; a file that routing.log names
    is yours to delete.
    """
    from penstock.gateway.store.verdicts import VerdictTable

    with open_state(state_settings(state_dir, config), create=False) as database:
        table = None if database is None else VerdictTable(database)
        count = 0 if table is None else table.count(tenant)
        if table is not None and count:
            _ask(tenant, count, yes)
            count = table.delete_tenant(tenant)
    if as_json:
        print(json.dumps({"tenant": tenant, "deleted": count}, ensure_ascii=False))
    elif count:
        print(f"Deleted {count:,} verdicts of {tenant}.")
    else:
        print(f"There are no verdicts of {tenant}.", file=sys.stderr)


def _ask(tenant: str, count: int, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"This deletes {count:,} verdicts of {tenant} for good; say so with --yes.")
    typer.confirm(f"Delete {count:,} verdicts of {tenant} for good?", abort=True, err=True)
