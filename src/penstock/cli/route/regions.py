"""How good each tier's answers were, by kind of question: verdicts of the monitor, surely worst first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.aio.monitor import Promotion, QualityBook, wilson
from penstock.cli.route.money import exact
from penstock.cli.table import table
from penstock.gateway.store.verdicts import VerdictTally

SHOWN: Final = 10  # lines of the table; all are in the JSON
_HEADS: Final = ("TIER", "REGION", "STATE", "VERDICTS", "UNCLEAR", "AS GOOD", "95% INTERVAL", "NEEDED")


@dataclass(frozen=True, slots=True)
class RegionQuality:
    """A tier's answers in a region. Good ones were as good as the expert's, or better."""

    tier: str
    region: str
    good: int
    verdicts: int  # clear ones
    unclear: int
    low: float  # of the probability that an answer is good, 95%
    high: float
    needed: int | None  # latest verdicts, if all go on like this, at which the tier is skipped; None: never
    promoted: bool  # the tier is skipped, for one tenant at the least
    cost: int  # picodollars, of the checks

    @property
    def share(self) -> float | None:
        return self.good / self.verdicts if self.verdicts else None

    def as_json(self) -> dict[str, object]:
        return {
            "tier": self.tier,
            "region": self.region,
            "promoted": self.promoted,
            "verdicts": self.verdicts,
            "unclear": self.unclear,
            "as_good": self.good,
            "share": None if self.share is None else round(self.share, 6),
            "low": round(self.low, 6),
            "high": round(self.high, 6),
            "needed": self.needed,
            "cost_usd": exact(self.cost),
        }


def qualities(
    tallies: Iterable[VerdictTally], promoted: Iterable[Promotion], threshold: float
) -> list[RegionQuality]:
    """`threshold`: below it, surely, a tier is skipped."""
    book = QualityBook(threshold)
    skipped = {(tier, region) for tier, region, *_ in promoted}
    rows = []
    for tally in tallies:
        good = tally.same + tally.low_better
        verdicts = good + tally.expert_better
        closed = (tally.tier, tally.region) in skipped
        low, high = wilson(good, verdicts)
        rows.append(
            RegionQuality(
                tally.tier,
                tally.region,
                good,
                verdicts,
                tally.unclear,
                low,
                high,
                book.samples_needed(good / verdicts) if verdicts and not closed else None,
                closed,
                tally.cost,
            )
        )
    return sorted(rows, key=lambda row: (row.high, row.low, row.tier, row.region))


def region_table(rows: Sequence[RegionQuality]) -> str:
    cells = [
        (
            row.tier,
            row.region,
            "skipped" if row.promoted else "asked",
            f"{row.verdicts:,}",
            f"{row.unclear:,}",
            "-" if row.share is None else f"{row.share:.1%}",
            f"{row.low:.1%} to {row.high:.1%}",
            "-" if row.needed is None else f"{row.needed:,}",
        )
        for row in rows[:SHOWN]
    ]
    more = f"\n({len(rows) - SHOWN} better ones are in --json.)" if len(rows) > SHOWN else ""
    return table(_HEADS, cells, numbers=5) + more
