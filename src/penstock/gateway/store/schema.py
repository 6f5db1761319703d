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
    # The quality monitor. A verdict compares a tier's answer with the expert's: `vector` is what heads see
    # (float32, little-endian; comparable within a `space`), texts are there only where the tenant allows it.
    # `predicted` and `challenged` are what the model in use and the one on trial expected of the answer, the
    # gains what their choices were worth; `arm` says which of the two decided. `promoted` are the regions in
    # which a tier is skipped; `rollout` is one row of JSON.
    (
        """CREATE TABLE verdicts (
            id INTEGER PRIMARY KEY,
            at INTEGER NOT NULL,
            tenant TEXT NOT NULL,
            request TEXT NOT NULL,
            tier TEXT NOT NULL,
            model TEXT NOT NULL,
            expert TEXT NOT NULL,
            reference TEXT NOT NULL,
            region TEXT NOT NULL,
            kind TEXT NOT NULL,
            judge TEXT NOT NULL,
            outcome TEXT NOT NULL,
            score REAL NOT NULL,
            probe INTEGER NOT NULL,
            cost INTEGER NOT NULL,
            arm TEXT NOT NULL,
            predicted REAL,
            challenged REAL,
            gain REAL,
            challenger_gain REAL,
            expert_quality REAL,
            space TEXT NOT NULL,
            vector BLOB,
            question TEXT,
            answer TEXT,
            expert_answer TEXT
        )""",
        "CREATE INDEX verdicts_at ON verdicts (at)",
        "CREATE INDEX verdicts_tenant ON verdicts (tenant)",
        """CREATE TABLE promoted (
            tier TEXT NOT NULL,
            region TEXT NOT NULL,
            at INTEGER NOT NULL,
            reason TEXT NOT NULL,
            PRIMARY KEY (tier, region)
        ) WITHOUT ROWID""",
        """CREATE TABLE predictors (
            version TEXT PRIMARY KEY,
            at INTEGER NOT NULL,
            space TEXT NOT NULL,
            heads BLOB NOT NULL,
            note TEXT NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE rollout (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            number INTEGER NOT NULL,
            state TEXT NOT NULL
        )""",
        """CREATE TABLE routing_events (
            id INTEGER PRIMARY KEY,
            at INTEGER NOT NULL,
            what TEXT NOT NULL,
            subject TEXT NOT NULL,
            reason TEXT NOT NULL
        )""",
        "INSERT INTO changes VALUES ('routing', 0)",
    ),
    # What routing did, and what the same requests would have cost without it: see `aio.books`, whose names
    # these are. Amounts are in picodollars below a whole dollar; the dollars are in a column of their own.
    (
        """CREATE TABLE routes (
            tenant TEXT NOT NULL,
            day TEXT NOT NULL,
            tier TEXT NOT NULL,
            requests INTEGER NOT NULL,
            by_expert INTEGER NOT NULL,
            output_tokens INTEGER NOT NULL,
            cost_dollars INTEGER NOT NULL,
            cost INTEGER NOT NULL,
            expert_cost_dollars INTEGER NOT NULL,
            expert_cost INTEGER NOT NULL,
            quality INTEGER NOT NULL,
            deviation INTEGER NOT NULL,
            expert_quality INTEGER NOT NULL,
            weighed INTEGER NOT NULL,
            would_cost_dollars INTEGER NOT NULL,
            would_cost INTEGER NOT NULL,
            would_quality INTEGER NOT NULL,
            chosen INTEGER NOT NULL,
            promoted INTEGER NOT NULL,
            capped INTEGER NOT NULL,
            unanswered INTEGER NOT NULL,
            classifier_nanoseconds INTEGER NOT NULL,
            classifier_cost_dollars INTEGER NOT NULL,
            classifier_cost INTEGER NOT NULL,
            passed_over INTEGER NOT NULL,
            discarded INTEGER NOT NULL,
            cascade_cost_dollars INTEGER NOT NULL,
            cascade_cost INTEGER NOT NULL,
            pinned INTEGER NOT NULL,
            pinned_cost_dollars INTEGER NOT NULL,
            pinned_cost INTEGER NOT NULL,
            as_good INTEGER NOT NULL,
            worse INTEGER NOT NULL,
            better INTEGER NOT NULL,
            unclear INTEGER NOT NULL,
            monitor_cost_dollars INTEGER NOT NULL,
            monitor_cost INTEGER NOT NULL,
            paired_tokens INTEGER NOT NULL,
            paired_expert_tokens INTEGER NOT NULL,
            PRIMARY KEY (tenant, day, tier)
        ) WITHOUT ROWID""",
    ),
    # A promotion is about the model that answered for the tier: another one in its place begins anew.
    (
        "ALTER TABLE promoted RENAME TO promoted_tiers",
        """CREATE TABLE promoted (
            tier TEXT NOT NULL,
            model TEXT NOT NULL,
            region TEXT NOT NULL,
            at INTEGER NOT NULL,
            reason TEXT NOT NULL,
            PRIMARY KEY (tier, model, region)
        ) WITHOUT ROWID""",
        """INSERT INTO promoted SELECT tier, COALESCE(
            (SELECT model FROM verdicts WHERE tier = promoted_tiers.tier ORDER BY id DESC LIMIT 1), ''
        ), region, at, reason FROM promoted_tiers""",
        "DROP TABLE promoted_tiers",
    ),
    # A promotion is one tenant's, or of all ('').
    (
        "ALTER TABLE promoted RENAME TO promoted_for_all",
        """CREATE TABLE promoted (
            tier TEXT NOT NULL,
            model TEXT NOT NULL,
            region TEXT NOT NULL,
            tenant TEXT NOT NULL,
            at INTEGER NOT NULL,
            reason TEXT NOT NULL,
            PRIMARY KEY (tier, model, region, tenant)
        ) WITHOUT ROWID""",
        "INSERT INTO promoted SELECT tier, model, region, '', at, reason FROM promoted_for_all",
        "DROP TABLE promoted_for_all",
    ),
)
