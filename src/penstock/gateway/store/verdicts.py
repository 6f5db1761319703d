"""The table of verdicts: how answers of lower tiers compared with the expert's.

Vectors are kept so that heads can be fitted again; texts only where the tenant allows it. Several processes
add to it and follow it by the numbers of its rows, so that all count the same verdicts in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import Final

import msgspec
import numpy as np

from penstock.aio.judges.verdict import Outcome
from penstock.aio.monitor.rollout import Arm, Trial
from penstock.aio.retrain import Rows
from penstock.gateway.store.database import Database

MOST_ROWS: Final = 200_000
_BATCH: Final = 1000  # rows that are read at once


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """A verdict with its circumstances. Times are Unix seconds, money picodollars; names are the tiers'."""

    at: int
    tenant: str
    request: str  # id of the request whose answer was checked
    tier: str
    model: str  # that answered for the tier
    expert: str  # tier that it was compared with
    reference: str  # the measured model that the tier is like
    region: str
    kind: str
    judge: str
    outcome: Outcome
    score: float
    probe: bool = False
    cost: int = 0  # of the check
    arm: Arm = "champion"
    predicted: float | None = None
    challenged: float | None = None
    gain: float | None = None
    challenger_gain: float | None = None
    expert_quality: float | None = None  # as predicted: how probably the expert's answer was right
    space: str = ""  # of the vector
    vector: bytes | None = None  # float32, little-endian
    question: str | None = None
    answer: str | None = None
    expert_answer: str | None = None


@dataclass(frozen=True, slots=True)
class VerdictTally:
    """Verdicts on one tier in one region, by outcome."""

    tier: str
    region: str
    same: int
    low_better: int
    expert_better: int
    unclear: int
    cost: int  # picodollars


@dataclass(frozen=True, slots=True)
class Seen:
    """What a quality book needs of a verdict; `id` grows with every one."""

    id: int
    at: int
    tenant: str
    tier: str
    model: str
    region: str
    outcome: Outcome
    predicted: float | None


_NAMES: Final = tuple(field.name for field in fields(VerdictRow))
_COLUMNS: Final = ", ".join(_NAMES)
# How probably a tier's answer was right: a head says that, and not how it compares with the expert's. Where
# both are alike it is right as often as the expert.
_RIGHT: Final = (
    "CASE outcome WHEN 'expert_better' THEN 0.0 WHEN 'low_better' THEN 1.0 "
    "ELSE COALESCE(expert_quality, 1.0) END"
)
_COUNTS: Final = ", ".join(
    f"SUM(outcome = '{outcome}')" for outcome in ("same", "low_better", "expert_better", "unclear")
)


class VerdictTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: VerdictRow) -> int:
        """Keep a verdict; its number, which no other one had or will have."""
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO changes VALUES ('verdicts', 1) "
                "ON CONFLICT (what) DO UPDATE SET number = number + 1"
            )
            (id,) = connection.execute("SELECT number FROM changes WHERE what = 'verdicts'").fetchone()
            marks = ", ".join("?" * len(_NAMES))
            connection.execute(
                f"INSERT INTO verdicts (id, {_COLUMNS}) VALUES (?, {marks})", (id, *astuple(row))
            )
        return int(id)

    def after(self, id: int, *, most: int = 10_000) -> list[Seen]:
        """Verdicts with higher numbers, in order: for a book that follows."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT id, at, tenant, tier, model, region, outcome, predicted FROM verdicts WHERE id > ? "
                "ORDER BY id LIMIT ?",
                (id, most),
            ).fetchall()
        return [Seen(*row) for row in rows]

    def tallies(
        self, since: float = 0.0, until: float | None = None, tenant: str | None = None
    ) -> list[VerdictTally]:
        """By tier and region, in that order; those before `until`, and only a tenant's if it is named."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"SELECT tier, region, {_COUNTS}, SUM(cost) FROM verdicts WHERE at >= ?1 "
                "AND (?2 IS NULL OR at < ?2) AND (?3 IS NULL OR tenant = ?3) "
                "GROUP BY tier, region ORDER BY tier, region",
                (since, until, tenant),
            ).fetchall()
        return [VerdictTally(*row) for row in rows]

    def upgrades(self, since: float) -> tuple[int, int]:
        """How many answers were checked with a clear verdict, and in how many the expert's was better.

        Probes do not count: what they ask for is known to be bad, and nobody was given it.
        """
        with self._database.read() as connection:
            sampled, upgraded = connection.execute(
                "SELECT COUNT(*), COALESCE(SUM(outcome = 'expert_better'), 0) FROM verdicts "
                "WHERE at >= ? AND outcome != 'unclear' AND NOT probe",
                (since,),
            ).fetchone()
        return int(sampled), int(upgraded)

    def spent(self, since: float) -> int:
        """What checks have cost, in picodollars."""
        with self._database.read() as connection:
            (cost,) = connection.execute(
                "SELECT COALESCE(SUM(cost), 0) FROM verdicts WHERE at >= ?", (since,)
            ).fetchone()
        return int(cost)

    def trials(self, since: float) -> list[Trial]:
        """Clear verdicts on answers that two models had rated."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT at, arm, outcome != 'expert_better', predicted, challenged, gain, challenger_gain "
                "FROM verdicts WHERE at >= ? AND outcome != 'unclear' AND predicted IS NOT NULL "
                "AND challenged IS NOT NULL ORDER BY id",
                (since,),
            ).fetchall()
        return [Trial(at, arm, bool(good), *rest) for at, arm, good, *rest in rows]

    def rows(self, space: str, *, since: float = 0.0, most: int = 20_000) -> dict[str, Rows]:
        """What heads are fitted to, by reference: the latest clear verdicts with vectors of this space."""
        with self._database.read() as connection:
            found = connection.execute(
                f"SELECT reference, vector, {_RIGHT} FROM verdicts WHERE space = ? "
                "AND at >= ? AND vector IS NOT NULL AND outcome != 'unclear' ORDER BY id DESC LIMIT ?",
                (space, since, most),
            ).fetchall()
        parts: dict[str, list[tuple[bytes, float]]] = {}
        for reference, vector, good in reversed(found):
            parts.setdefault(reference, []).append((vector, good))
        return {reference: _rows(part) for reference, part in parts.items()}

    def export(self, since: float = 0.0) -> Iterator[bytes]:
        """Lines of JSON that `penstock route train` and `route eval` read: verdicts whose text was kept."""
        last = 0
        while True:
            with self._database.read() as connection:
                rows = connection.execute(
                    "SELECT id, question, region, tier, expert, outcome, answer, expert_answer FROM verdicts "
                    "WHERE id > ? AND at >= ? AND question IS NOT NULL AND outcome != 'unclear' "
                    "ORDER BY id LIMIT ?",
                    (last, since, _BATCH),
                ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            for _, question, region, tier, expert, outcome, answer, expert_answer in rows:
                answers = {tier: answer, expert: expert_answer}
                yield msgspec.json.encode(
                    {
                        "query": question,
                        "group": region,
                        "outcomes": {
                            tier: int(outcome != "expert_better"),
                            expert: int(outcome != "low_better"),
                        },
                        "answers": {name: text for name, text in answers.items() if text is not None},
                    }
                )

    def prune(self, before: float, most: int = MOST_ROWS) -> int:
        """Remove verdicts from before a time, and the oldest of more than `most`; how many went."""
        with self._database.write() as connection:
            gone = connection.execute("DELETE FROM verdicts WHERE at < ?", (before,)).rowcount
            gone += connection.execute(
                "DELETE FROM verdicts WHERE id <= "
                "(SELECT id FROM verdicts ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (most,),
            ).rowcount
        return int(gone)

    def count(self, tenant: str) -> int:
        """How many there are of a tenant."""
        with self._database.read() as connection:
            (count,) = connection.execute(
                "SELECT COUNT(*) FROM verdicts WHERE tenant = ?", (tenant,)
            ).fetchone()
        return int(count)

    def delete_tenant(self, tenant: str) -> int:
        """Remove everything that came from a tenant; how many verdicts that were. Their bytes go, too."""
        with self._database.read() as connection:
            connection.execute("PRAGMA secure_delete = ON")
        with self._database.write() as connection:
            gone = int(connection.execute("DELETE FROM verdicts WHERE tenant = ?", (tenant,)).rowcount)
        with self._database.read() as connection:
            # The log still has them. Where another process reads it just now, its next checkpoint does this.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return gone


def _rows(part: list[tuple[bytes, float]]) -> Rows:
    """Vectors of one length: that of the latest."""
    size = len(part[-1][0])
    kept = [(vector, good) for vector, good in part if len(vector) == size]
    vectors = np.frombuffer(b"".join(vector for vector, _ in kept), "<f4").reshape(len(kept), size // 4)
    outcomes = np.array([good for _, good in kept], np.float64)
    return Rows(vectors.astype(np.float32), outcomes, np.ones(len(kept)))
