"""The router's books as lines of a table and as JSON: by tenant, day, tier, or several of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.aio.balance import Balance, Measured, balances, measured
from penstock.aio.books import MILLION, MONEY, RouteTally, Tallies
from penstock.cli.route.money import dollars, exact, percent
from penstock.cli.table import table

PARTS: Final = ("tenant", "day", "tier")

_HEADS: Final = ("REQUESTS", "SPENT", "ROUTING", "EXPERT", "MIXTURE", "NET", "SAVED", "PREDICTED", "MEASURED")
_TIER_HEADS: Final = (
    "REQUESTS",
    "SHARE",
    "SPENT",
    "EXPERT",
    "PASSED",
    "DISCARDED",
    "PINNED",
    "PREDICTED",
    "MEASURED",
    "VERDICTS",
)


def books_table(tallies: Tallies, parts: Sequence[str], total: Balance, quality: Measured | None) -> str:
    if "tier" in parts:
        groups = _grouped(tallies, parts)
        requests = sum(tally.requests for tally in groups.values())
        rows = [(*key, *_tier_cells(tally, requests)) for key, tally in groups.items()]
        return table([*(part.upper() for part in parts), *_TIER_HEADS], rows, numbers=len(_TIER_HEADS))
    rows = [(*key, *_cells(*found)) for key, found in _balances(tallies, parts).items()]
    if len(rows) > 1:
        rows.append(("TOTAL", *[""] * (len(parts) - 1), *_cells(total, quality)))
    return table([*(part.upper() for part in parts), *_HEADS], rows, numbers=len(_HEADS))


def tier_table(tiers: Mapping[str, RouteTally]) -> str:
    requests = sum(tally.requests for tally in tiers.values())
    rows = [(tier, *_tier_cells(tally, requests)) for tier, tally in tiers.items()]
    return table(["TIER", *_TIER_HEADS], rows, numbers=len(_TIER_HEADS))


def _cells(balance: Balance, quality: Measured | None) -> tuple[str, ...]:
    return (
        f"{balance.requests:,}",
        dollars(balance.spent),
        dollars(balance.routing),
        dollars(balance.always_expert),
        dollars(balance.mixture),
        dollars(balance.net),
        percent(balance.net, balance.always_expert),
        percent(balance.quality, balance.expert_quality),
        _interval(quality),
    )


def _tier_cells(tally: RouteTally, requests: int) -> tuple[str, ...]:
    return (
        f"{tally.requests:,}",
        percent(tally.requests, requests),
        dollars(tally.cost),
        dollars(tally.expert_cost),
        f"{tally.passed_over:,}",
        f"{tally.discarded:,}",
        f"{tally.pinned:,}",
        percent(tally.quality, tally.expert_quality),
        _interval(measured([tally])),
        f"{tally.as_good + tally.worse:,}",
    )


def _interval(quality: Measured | None) -> str:
    if quality is None:
        return "-"
    return f"{100 * quality.share:.1f}% ({100 * quality.low:.1f}-{100 * quality.high:.1f})"


# ---------------------------------------------------------------- JSON


def rows_as_json(tallies: Tallies, parts: Sequence[str]) -> list[dict[str, object]]:
    if "tier" in parts:
        return [
            {**dict(zip(parts, key, strict=True)), **tier_as_json(tally)}
            for key, tally in _grouped(tallies, parts).items()
        ]
    return [
        {**dict(zip(parts, key, strict=True)), **balance_as_json(*found)}
        for key, found in _balances(tallies, parts).items()
    ]


def balance_as_json(balance: Balance, quality: Measured | None) -> dict[str, object]:
    return {
        "requests": balance.requests,
        "unanswered": balance.unanswered,
        "pinned": balance.pinned,
        "pinned_usd": exact(balance.pinned_cost),
        "spent_usd": exact(balance.spent),
        "classifier_usd": exact(balance.classifier),
        "cascade_usd": exact(balance.cascade),
        "monitor_usd": exact(balance.monitor),
        "always_expert_usd": exact(balance.always_expert),
        "mixture_usd": exact(balance.mixture),
        "gross_saving_usd": exact(balance.gross),
        "net_saving_usd": exact(balance.net),
        "net_saving": _share(balance.net, balance.always_expert),
        "net_saving_of_mixture_usd": exact(balance.net_of_mixture),
        "predicted_quality": _share(balance.quality, balance.requests * MILLION),
        "predicted_deviation": _share(balance.deviation, balance.requests * MILLION),
        "predicted_share_of_expert": _share(balance.quality, balance.expert_quality),
        "measured": _measured_as_json(quality),
    }


def tier_as_json(tally: RouteTally) -> dict[str, object]:
    sums = dataclasses.asdict(tally)
    money = {f"{name}_usd": exact(sums.pop(name)) for name in MONEY}
    for name in ("quality", "deviation", "expert_quality", "would_quality"):
        sums[name] = sums[name] / MILLION
    return {**sums, **money, "measured": _measured_as_json(measured([tally]))}


def _measured_as_json(quality: Measured | None) -> dict[str, object] | None:
    if quality is None:
        return None
    return {
        "share": round(quality.share, 6),
        "low": round(quality.low, 6),
        "high": round(quality.high, 6),
        "verdicts": quality.verdicts,
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


# ---------------------------------------------------------------- groups


def by_tier(tallies: Tallies) -> dict[str, RouteTally]:
    """Cheapest first: by what a request would have cost there."""
    tiers = {key[0]: tally for key, tally in _grouped(tallies, ("tier",)).items()}
    return dict(sorted(tiers.items(), key=lambda each: each[1].would_cost / max(each[1].weighed, 1)))


def _grouped(tallies: Tallies, parts: Sequence[str]) -> dict[tuple[str, ...], RouteTally]:
    groups: dict[tuple[str, ...], RouteTally] = {}
    for account, tally in tallies.items():
        named = dict(zip(PARTS, account, strict=True))
        groups.setdefault(tuple(named[part] for part in parts), RouteTally()).add(tally)
    return dict(sorted(groups.items()))


def _balances(
    tallies: Tallies, parts: Sequence[str]
) -> dict[tuple[str, ...], tuple[Balance, Measured | None]]:
    sums: dict[tuple[str, ...], Balance] = {}
    for (tenant, day), balance in balances(tallies).items():
        named = {"tenant": tenant, "day": day}
        key = tuple(named[part] for part in parts)
        sums[key] = sums.get(key, Balance()) + balance
    tiers: dict[tuple[str, ...], list[RouteTally]] = {}
    for key, tally in _grouped(tallies, (*parts, "tier")).items():
        tiers.setdefault(key[:-1], []).append(tally)
    return {key: (balance, measured(tiers[key])) for key, balance in sorted(sums.items())}
