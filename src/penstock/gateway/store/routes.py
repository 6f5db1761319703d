"""The router's books on disk: exact sums by tenant, day (UTC) and tier, of all processes together."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Mapping
from typing import Final

from penstock.aio.books import FIELDS, MONEY, Account, RouteTally, Tallies, merge
from penstock.gateway.store.database import Database
from penstock.gateway.store.flushing import Flusher
from penstock.gateway.store.usage import DOLLAR

logger = logging.getLogger("penstock.gateway")

_PLAIN: Final = tuple(name for name in FIELDS if name not in MONEY)
_DOLLARS: Final = tuple(f"{name}_dollars" for name in MONEY)
_COLUMNS: Final = ("tenant", "day", "tier", *_PLAIN, *_DOLLARS, *MONEY)


def _carry(name: str) -> str:
    return f"(routes.{name} + excluded.{name} >= {DOLLAR})"


_ADD: Final = (
    f"INSERT INTO routes ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    "ON CONFLICT (tenant, day, tier) DO UPDATE SET "
    + ", ".join(f"{name} = routes.{name} + excluded.{name}" for name in _PLAIN)
    + "".join(
        f", {name}_dollars = routes.{name}_dollars + excluded.{name}_dollars + {_carry(name)}"
        f", {name} = routes.{name} + excluded.{name} - {_carry(name)} * {DOLLAR}"
        for name in MONEY
    )
)
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM routes"


class RouteTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, tallies: Mapping[Account, RouteTally]) -> None:
        """Add to the sums, all in one transaction."""
        rows = []
        for account, tally in tallies.items():
            money = [divmod(getattr(tally, name), DOLLAR) for name in MONEY]
            plain = [getattr(tally, name) for name in _PLAIN]
            rows.append((*account, *plain, *(dollars for dollars, _ in money), *(rest for _, rest in money)))
        with self._database.write() as connection:
            connection.executemany(_ADD, rows)

    def totals(
        self,
        *,
        tenant: str | None = None,
        tier: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Tallies:
        """Sums by tenant, day and tier, sorted; days from `since` to `until`, both included."""
        wanted = [
            (condition, value)
            for condition, value in (
                ("tenant = ?", tenant),
                ("tier = ?", tier),
                ("day >= ?", since),
                ("day <= ?", until),
            )
            if value is not None
        ]
        where = " WHERE " + " AND ".join(condition for condition, _ in wanted) if wanted else ""
        found: Tallies = {}
        with self._database.read() as connection:
            order = " ORDER BY tenant, day, tier"
            for values in connection.execute(_SELECT + where + order, [value for _, value in wanted]):
                row = dict(zip(_COLUMNS, values, strict=True))
                money = {name: row[f"{name}_dollars"] * DOLLAR + row[name] for name in MONEY}
                tally = RouteTally(**{name: row[name] for name in _PLAIN}, **money)
                found[row["tenant"], row["day"], row["tier"]] = tally
        return found


# Of one request; its tokens are bounded where they are reported, and its money with them.
_MOST: Final = 10**12
_MOST_MONEY: Final = 10**12 * DOLLAR


def _bounded(tally: RouteTally) -> RouteTally:
    """What one request adds, fit for sums: whoever reports more has lost count."""
    most = {name: _MOST_MONEY if name in MONEY else _MOST for name in FIELDS}
    over = {name: bound for name, bound in most.items() if getattr(tally, name) > bound}
    return dataclasses.replace(tally, **over) if over else tally


class RouteLedger:
    """Sums gathered in memory and written in groups.

    `add` is the event loop's; `flush` may run in a thread beside it. While the file cannot be written, sums
    grow where they are, and nothing is lost or counted twice. Without a table they stay in memory.
    """

    def __init__(self, table: RouteTable | None = None) -> None:
        self._table = table
        self._lock = threading.Lock()  # guards `_pending`
        self._flusher = Flusher("The router's books")
        self._pending: Tallies = {}
        self.since_start: dict[str, RouteTally] = {}  # by tier, of this process; the event loop's

    def add(self, tallies: Mapping[Account, RouteTally]) -> None:
        """What one request has come to, or one check of it."""
        bounded = {account: _bounded(tally) for account, tally in tallies.items()}
        for (_, _, tier), tally in bounded.items():
            self.since_start.setdefault(tier, RouteTally()).add(tally)
        self._keep(bounded)

    @property
    def pending(self) -> bool:
        return bool(self._pending)

    def flush(self, table: RouteTable | None = None) -> bool:
        """Write what has gathered, to this table if one is given. False: it is kept, to be tried again."""
        table = table or self._table
        if table is None:
            return True
        return self._flusher.flush(table.add, self._take, self._keep)

    def _take(self) -> Tallies:
        with self._lock:
            batch, self._pending = self._pending, {}
        return batch

    def _keep(self, batch: Mapping[Account, RouteTally]) -> None:
        with self._lock:
            merge(self._pending, batch)
