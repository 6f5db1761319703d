"""What answers cost, and whether the cheap ones are good enough."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.observe.alerts import thresholds
from penstock.observe.alerts.rule import Rule, alert
from penstock.observe.objectives import Promises
from penstock.observe.promql import increase, rate, span


def dollars_per_token(window: str, by: str = "", where: str = "", shift: str = "") -> str:
    kinds = ",".join(filter(None, ('kind=~"prompt|completion"', where)))
    dollars = rate("penstock_cost_dollars_total", window, by, where, shift)
    return f"{dollars} / {rate('penstock_tokens_total', window, by, kinds, shift)}"


def rules(promises: Promises) -> Iterator[Rule]:
    cost = thresholds.COST
    window = span(cost.window)
    yield alert(
        cost,
        f"({dollars_per_token(window)})\n/ ({dollars_per_token(span(thresholds.DAY), shift=window)})"
        f" > {cost.bound:g}",
        "A token costs {{ $value | humanize }} times what it cost in the last day.",
        "The mix of tiers and models, promotions by the quality monitor, and lost cache hits.",
    )
    quality, verdicts = thresholds.ROUTE_QUALITY, "penstock_route_verdicts_total"
    window = span(quality.window)
    worse = rate(verdicts, window, "tier", 'outcome="expert_better"')
    checked = rate(verdicts, window, "tier", 'outcome=~"same|expert_better|low_better"')
    count = increase(verdicts, window, "tier", 'outcome=~"same|expert_better|low_better"')
    yield alert(
        quality,
        f"{worse} / {checked} > {quality.bound:g}\nand {count} >= {quality.least}",
        "{{ $value | humanizePercentage }} of the checked answers of {{ $labels.tier }} should have been the "
        "expert's.",
        "`penstock route report` says for which kinds of queries; `penstock route train` learns from it.",
    )
