"""The tables, as steps from each version of the file to the next. A step that was released never changes."""

from __future__ import annotations

from typing import Final

# Times are Unix seconds. Of a key only the SHA-256 is kept; `changes` counts what happened to keys, so that
# servers notice. Money is parted into whole dollars and picodollars (1e-12): SQLite's integers end at nine
# million dollars of the latter.
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE keys (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            tenant TEXT NOT NULL,
            digest BLOB NOT NULL,
            admin INTEGER NOT NULL,
            created INTEGER NOT NULL,
            expires INTEGER,
            revoked INTEGER
        ) WITHOUT ROWID""",
        "CREATE TABLE changes (what TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID",
        "INSERT INTO changes VALUES ('keys', 0)",
        """CREATE TABLE usage (
            tenant TEXT NOT NULL,
            day TEXT NOT NULL,
            model TEXT NOT NULL,
            requests INTEGER NOT NULL,
            prompt INTEGER NOT NULL,
            cached INTEGER NOT NULL,
            completion INTEGER NOT NULL,
            saved INTEGER NOT NULL,
            dollars INTEGER NOT NULL,
            picodollars INTEGER NOT NULL,
            ok INTEGER NOT NULL,
            aborted INTEGER NOT NULL,
            failed INTEGER NOT NULL,
            refused INTEGER NOT NULL,
            PRIMARY KEY (tenant, day, model)
        ) WITHOUT ROWID""",
    ),
)
