"""`penstock keys`: who may call a server. A server that runs notices every change within two seconds."""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import examples
from penstock.cli.state import Config, StateDir, open_state, state_settings
from penstock.cli.table import table
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.gateway.store import KeyRecord

_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"([1-9]\d{0,5})([mhdw])")
_TENANT = re.compile(r"\S{1,128}")  # as in the configuration file
_FORMER_KEY = re.compile(r"sk-penstock-([0-9a-f]{12})-.*", re.DOTALL)

app = typer.Typer(
    help="Make, list and revoke the API keys of this machine's servers.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


@app.command(
    epilog=examples(
        ("penstock keys create laptop", "a key of the tenant 'default'"),
        ("penstock keys create ci --tenant acme --expires 90d", "one that ends by itself"),
        ("export OPENAI_API_KEY=$(penstock keys create me 2>/dev/null)", "the key alone goes to stdout"),
    )
)
def create(
    name: Annotated[str, typer.Argument(help="What the key is for, so that you know it again.")],
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="NAME", help="Whose limits, budget and bill it is.")
    ] = "default",
    admin: Annotated[
        bool, typer.Option("--admin", help="May see the replicas, and register servers (/admin).")
    ] = False,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="End after 30m, 12h, 90d or 4w.", show_default=False),
    ] = None,
    as_json: Json = False,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Make a key. It is shown once: only a hash of it is kept."""
    from penstock.gateway.accounts.keys import DEFAULT_TENANT, mint
    from penstock.gateway.store import KeyTable

    _check_names(name, tenant)
    settings = state_settings(state_dir, config)
    now = int(time.time())
    end = None if expires is None else now + _seconds(expires)
    key, record = mint(name, tenant, admin=admin, created=now, expires=end)
    with open_state(settings, create=True) as database:
        assert database is not None
        KeyTable(database).add(record)
    if as_json:
        print(json.dumps({**_as_json(record), "key": key}, ensure_ascii=False))
        return
    print(key)
    until = f" It ends on {_date(end)}." if end is not None else ""
    print(f"Key {record.id} of tenant {tenant}, shown this once: keep it safe.{until}", file=sys.stderr)
    tenants = settings.gateway.tenants
    if tenants and tenant != DEFAULT_TENANT and settings.gateway.tenant(tenant) is None:
        print(f"Tenant {tenant} is not in the configuration file.", file=sys.stderr)


@app.command(
    "list",
    epilog=examples(
        ("penstock keys list", "all keys, also those that have ended"),
        ("penstock keys list --json | jq -r '.[].id'", "for scripts"),
    ),
)
def list_keys(as_json: Json = False, state_dir: StateDir = None, config: Config = None) -> None:
    """List the keys: what each is for and whether it may still be used."""
    records = _records(state_dir, config)
    if as_json:
        print(json.dumps([_as_json(record) for record in records], indent=2, ensure_ascii=False))
        return
    if not records:
        print("There are no keys yet; `penstock keys create NAME` makes one.", file=sys.stderr)
        return
    rows = [
        (
            record.id,
            record.name,
            record.tenant,
            record.state(time.time()) + (", admin" if record.admin else ""),
            _date(record.created),
            "never" if record.expires is None else _date(record.expires),
        )
        for record in records
    ]
    print(table(("ID", "NAME", "TENANT", "STATE", "CREATED", "EXPIRES"), rows))


@app.command(
    epilog=examples(("penstock keys revoke 1f0c2a9be47d", "servers that run refuse it within two seconds"))
)
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `penstock keys list` shows it.")],
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Refuse a key from now on. It cannot be undone."""
    from penstock.gateway.store import KeyTable

    # Whoever pastes a whole key means its id; the rest is not to be repeated anywhere.
    if match := _FORMER_KEY.fullmatch(id):
        id = match[1]
    with open_state(state_settings(state_dir, config), create=False) as database:
        known = database is not None and KeyTable(database).revoke(id, int(time.time()))
    if not known:
        raise ConfigError(f"There is no key {id[:64]!r}; `penstock keys list` shows those there are.")
    print(f"Key {id} is revoked.")


def _records(state_dir: str | None, config: str | None) -> list[KeyRecord]:
    from penstock.gateway.store import KeyTable

    with open_state(state_settings(state_dir, config), create=False) as database:
        return [] if database is None else KeyTable(database).all()


def _check_names(name: str, tenant: str) -> None:
    if not 0 < len(name) <= 100 or not name.isprintable():
        raise ConfigError(f"A key's name must have 1 to 100 printable characters, got {name[:100]!r}.")
    if not _TENANT.fullmatch(tenant) or not tenant.isprintable():
        raise ConfigError(f"--tenant must be a name of 1 to 128 characters without blanks, got {tenant!r}.")


def _seconds(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"--expires must be a time such as 30m, 12h, 90d or 4w, got {text[:64]!r}.")
    return int(match[1]) * _UNITS[match[2]]


def _as_json(record: KeyRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "name": record.name,
        "tenant": record.tenant,
        "admin": record.admin,
        "state": record.state(time.time()),
        "created": _iso(record.created),
        "expires": _iso(record.expires),
        "revoked": _iso(record.revoked),
    }


def _iso(seconds: int | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _date(seconds: int | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
