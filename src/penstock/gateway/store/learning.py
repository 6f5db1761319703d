"""What the monitor has decided, for all processes and the next start: promotions, predictors, the rollout."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.aio.monitor.book import Change, Promotion
from penstock.aio.monitor.rollout import Event, Rollout
from penstock.gateway.store.database import Database

MOST_EVENTS: Final = 1000
_KEPT_PREDICTORS: Final = 5  # the latest ones
_CHANGED: Final = "UPDATE changes SET number = number + 1 WHERE what = 'routing'"


@dataclass(frozen=True, slots=True)
class StoredPredictor:
    """Heads that were learnt here, as bytes; `space` says which vectors they are for."""

    version: str
    at: int
    space: str
    heads: bytes
    note: str


class LearningTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def version(self) -> int:
        """Another number whenever promotions, predictors or the rollout have changed; cheap to ask for."""
        with self._database.read() as connection:
            (number,) = connection.execute("SELECT number FROM changes WHERE what = 'routing'").fetchone()
        return int(number)

    def promoted(self, models: Mapping[str, str] | None = None) -> list[Promotion]:
        """What is skipped; where `models` says who answers for each tier, only what
        is about that one."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT tier, model, region, tenant, at FROM promoted ORDER BY tier, region, tenant, at"
            ).fetchall()
        return [
            Promotion(tier, region, tenant or None, at)
            for tier, model, region, tenant, at in rows
            if models is None or models.get(tier) == model
        ]

    def change(self, change: Change, model: str) -> bool:
        """Keep a promotion, or its end, of the model that answers for the tier, and record it; False if that
        was done already.

        It may have been by another process that follows the same verdicts, or before a restart, after which
        a book that is built again comes to the same changes at the same times.
        """
        what = "promoted" if change.promoted else "restored"
        subject = f"{change.tier} {change.region}" + (f" for {change.tenant}" if change.tenant else "")
        event = Event(change.at, what, subject, change.reason)
        key = change.tier, model, change.region, change.tenant or ""
        with self._database.write() as connection:
            if connection.execute(
                "SELECT 1 FROM routing_events WHERE at = ? AND what = ? AND subject = ?",
                (int(event.at), event.what, event.subject),
            ).fetchone():
                return False
            if change.promoted:
                done = connection.execute(
                    "INSERT OR IGNORE INTO promoted (tier, model, region, tenant, at, reason) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (*key, int(change.at), change.reason),
                ).rowcount
            else:
                done = connection.execute(
                    "DELETE FROM promoted WHERE tier = ? AND model = ? AND region = ? AND tenant = ?", key
                ).rowcount
            if done:
                _record(connection, [event])
                connection.execute(_CHANGED)
        return bool(done)

    def save(self, predictor: StoredPredictor) -> None:
        """Keep a predictor; those before the latest few go, unless the rollout names them."""
        with self._database.write() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO predictors (version, at, space, heads, note) VALUES (?, ?, ?, ?, ?)",
                (predictor.version, predictor.at, predictor.space, predictor.heads, predictor.note),
            )
            _, state = _rollout(connection)
            named = (state.champion, state.challenger) if state else ("", "")
            connection.execute(
                "DELETE FROM predictors WHERE version NOT IN (?, ?) AND version NOT IN "
                "(SELECT version FROM predictors ORDER BY at DESC, version DESC LIMIT ?)",
                (*named, _KEPT_PREDICTORS),
            )
            connection.execute(_CHANGED)

    def predictor(self, version: str) -> StoredPredictor | None:
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT version, at, space, heads, note FROM predictors WHERE version = ?", (version,)
            ).fetchone()
        return StoredPredictor(*row) if row else None

    def rollout(self) -> tuple[int, Rollout | None]:
        """The state, with a number to give to `set_rollout`; None if there never was one."""
        with self._database.read() as connection:
            return _rollout(connection)

    def set_rollout(self, number: int, state: Rollout, events: Sequence[Event]) -> bool:
        """Replace the state that has this number; False, and nothing, if another process was faster."""
        with self._database.write() as connection:
            current, _ = _rollout(connection)
            if current != number:
                return False
            connection.execute(
                "INSERT OR REPLACE INTO rollout (one, number, state) VALUES (1, ?, ?)",
                (number + 1, msgspec.json.encode(state).decode()),
            )
            _record(connection, events)
            connection.execute(_CHANGED)
        return True

    def record(self, events: Sequence[Event]) -> None:
        """Note what happened, such as an attempt to learn that was refused."""
        with self._database.write() as connection:
            _record(connection, events)

    def events(self, most: int = 100, what: str | None = None) -> list[Event]:
        """The latest first; only those of one kind if it is named."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT at, what, subject, reason FROM routing_events WHERE ?1 IS NULL OR what = ?1 "
                "ORDER BY id DESC LIMIT ?2",
                (what, most),
            ).fetchall()
        return [Event(*row) for row in rows]


def _rollout(connection: sqlite3.Connection) -> tuple[int, Rollout | None]:
    row = connection.execute("SELECT number, state FROM rollout").fetchone()
    return (int(row[0]), msgspec.json.decode(row[1], type=Rollout)) if row else (0, None)


def _record(connection: sqlite3.Connection, events: Sequence[Event]) -> None:
    connection.executemany(
        "INSERT INTO routing_events (at, what, subject, reason) VALUES (?, ?, ?, ?)",
        [(int(event.at), event.what, event.subject, event.reason) for event in events],
    )
    connection.execute(
        "DELETE FROM routing_events WHERE id <= "
        "(SELECT id FROM routing_events ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (MOST_EVENTS,),
    )
