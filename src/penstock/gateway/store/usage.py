"""The ledger's table: exact totals by tenant, model and day (UTC)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from penstock.gateway.store.database import Database

Part = Literal["tenant", "model", "day"]
PARTS: Final[tuple[Part, ...]] = ("tenant", "model", "day")
DOLLAR: Final = 10**12  # picodollars

Account = tuple[str, str, str]  # tenant, model, day


@dataclass(slots=True)
class Tally:
    """What was used. `requests` is the sum of the four outcomes; `cost` is in picodollars."""

    requests: int = 0
    prompt: int = 0
    cached: int = 0  # of the prompt
    completion: int = 0
    saved: int = 0  # tokens of prompts that were left out by policy
    cost: int = 0
    ok: int = 0
    aborted: int = 0
    failed: int = 0
    refused: int = 0

    def add(self, other: Tally) -> None:
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


FIELDS: Final = tuple(field.name for field in dataclasses.fields(Tally))


@dataclass(frozen=True, slots=True)
class UsageRow:
    """A total. A part that was not asked for is empty."""

    tenant: str
    model: str
    day: str
    tally: Tally


_PLAIN: Final = tuple(name for name in FIELDS if name != "cost")
_COLUMNS: Final = ("tenant", "model", "day", *_PLAIN, "dollars", "picodollars")
_CARRY: Final = f"usage.picodollars + excluded.picodollars >= {DOLLAR}"
_ADD: Final = (
    f"INSERT INTO usage ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    "ON CONFLICT (tenant, day, model) DO UPDATE SET "
    + ", ".join(f"{name} = usage.{name} + excluded.{name}" for name in _PLAIN)
    + f", dollars = usage.dollars + excluded.dollars + ({_CARRY})"
    + f", picodollars = usage.picodollars + excluded.picodollars - ({_CARRY}) * {DOLLAR}"
)
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM usage"


class UsageTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, tallies: Mapping[Account, Tally]) -> None:
        """Add to the totals, all in one transaction."""
        rows = [
            (*account, *(getattr(tally, name) for name in _PLAIN), *divmod(tally.cost, DOLLAR))
            for account, tally in tallies.items()
        ]
        with self._database.write() as connection:
            connection.executemany(_ADD, rows)

    def version(self) -> int:
        """Another number whenever another connection has written to the file."""
        with self._database.read() as connection:
            (number,) = connection.execute("PRAGMA data_version").fetchone()
        return int(number)

    def month_cost(self, tenant: str, month: str) -> int:
        """Picodollars a tenant has spent in a month (YYYY-MM)."""
        with self._database.read() as connection:
            dollars, picodollars = connection.execute(
                "SELECT coalesce(sum(dollars), 0), coalesce(sum(picodollars), 0) FROM usage "
                "WHERE tenant = ? AND day BETWEEN ? AND ?",
                (tenant, f"{month}-01", f"{month}-31"),
            ).fetchone()
        return int(dollars) * DOLLAR + int(picodollars)

    def spenders(self, month: str, most: int) -> list[UsageRow]:
        """Totals of the tenants that spent most in a month (YYYY-MM), or asked most where nothing costs."""
        columns = ", ".join(f"sum({name})" for name in (*_PLAIN, "dollars", "picodollars"))
        with self._database.read() as connection:
            found = connection.execute(
                f"SELECT tenant, {columns} FROM usage WHERE day BETWEEN ? AND ? GROUP BY tenant "
                f"ORDER BY sum(dollars) + sum(picodollars) / {DOLLAR}.0 DESC, sum(requests) DESC, tenant "
                "LIMIT ?",
                (f"{month}-01", f"{month}-31", most),
            ).fetchall()
        return [
            _row(
                {"tenant": tenant},
                Tally(**dict(zip(_PLAIN, plain, strict=True)), cost=dollars * DOLLAR + picodollars),
            )
            for tenant, *plain, dollars, picodollars in found
        ]

    def totals(
        self,
        by: Sequence[Part] = PARTS,
        *,
        tenant: str | None = None,
        model: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> list[UsageRow]:
        """Totals by the parts asked for, sorted by them; days from `since` to `until`, both included."""
        wanted = [
            (condition, value)
            for condition, value in (
                ("tenant = ?", tenant),
                ("model = ?", model),
                ("day >= ?", since),
                ("day <= ?", until),
            )
            if value is not None
        ]
        where = " WHERE " + " AND ".join(condition for condition, _ in wanted) if wanted else ""
        totals: dict[tuple[str, ...], Tally] = {}
        with self._database.read() as connection:
            for found in connection.execute(_SELECT + where, [value for _, value in wanted]):
                row = dict(zip(_COLUMNS, found, strict=True))
                tally = Tally(
                    **{name: row[name] for name in _PLAIN}, cost=row["dollars"] * DOLLAR + row["picodollars"]
                )
                totals.setdefault(tuple(row[part] for part in by), Tally()).add(tally)
        rows = [_row(dict(zip(by, key, strict=True)), tally) for key, tally in totals.items()]
        return sorted(rows, key=lambda row: [getattr(row, part) for part in by])


def _row(parts: Mapping[Part, str], tally: Tally) -> UsageRow:
    return UsageRow(parts.get("tenant", ""), parts.get("model", ""), parts.get("day", ""), tally)


def total(rows: Iterable[UsageRow]) -> Tally:
    everything = Tally()
    for row in rows:
        everything.add(row.tally)
    return everything
