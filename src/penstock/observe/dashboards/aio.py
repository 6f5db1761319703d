"""Routing and money: which tier answers, how well, what it saves, what tokens cost."""

from __future__ import annotations

from penstock.observe.alerts.cost import dollars_per_token
from penstock.observe.dashboards.board import (
    MODEL,
    Board,
    Query,
    Row,
    number,
    panel,
    per_second,
    quantiles,
    share,
)
from penstock.observe.promql import increase

_DOLLARS = "penstock_route_dollars_total"
_ANSWERS = "penstock_route_answers_total"
_VERDICTS = "penstock_route_verdicts_total"
_WORSE = 'outcome="expert_better"'
_JUDGED = 'outcome=~"same|expert_better|low_better"'


def _over(kind: str) -> str:
    return increase(_DOLLARS, "$__range", where=f'kind=~"{kind}"')


_SAVED = f"{_over('always_expert')} - {_over('spent|classifier|cascade|monitor')}"

BOARD = Board(
    name="penstock-aio",
    title="Penstock: orchestrator and cost",
    help="Which tier answers, how well, what it saves, what tokens cost.",
    rows=(
        Row(
            "Of the chosen time",
            (
                number("Saved by routing, net", f"({_SAVED}) / {_over('always_expert')}", "percentunit"),
                number("Saved by routing", _SAVED, "currencyUSD"),
                number(
                    "Spent", increase("penstock_cost_dollars_total", "$__range", where=MODEL), "currencyUSD"
                ),
                number(
                    "Dollars per 1M tokens",
                    f"1e6 * {dollars_per_token('$__range', where=MODEL)}",
                    "currencyUSD",
                ),
                number(
                    "Saved by the cache",
                    increase("penstock_cache_saved_dollars_total", "$__range", where=MODEL),
                    "currencyUSD",
                ),
                number(
                    "As good as the expert",
                    f"1 - {increase(_VERDICTS, '$__range', where=_WORSE)}"
                    f" / {increase(_VERDICTS, '$__range', where=_JUDGED)}",
                    "percentunit",
                    help="Of the answers that were checked.",
                ),
            ),
        ),
        Row(
            "Tiers",
            (
                panel(
                    "Mix of tiers",
                    Query(
                        f"{per_second(_ANSWERS, 'tier', '')}"
                        f" / ignoring (tier) group_left () {per_second(_ANSWERS, where='')}",
                        "{{tier}}",
                    ),
                    unit="percentunit",
                    kind="areas",
                    most=1,
                ),
                panel(
                    "Why a tier was chosen",
                    Query(
                        per_second("penstock_route_requests_total", "tier, reason", ""),
                        "{{tier}} {{reason}}",
                    ),
                    unit="reqps",
                    kind="areas",
                ),
                panel(
                    "Passed over, escalated",
                    Query(per_second("penstock_route_passed_over_total", "tier", ""), "{{tier}} passed over"),
                    Query(per_second("penstock_route_escalations_total", "tier", ""), "{{tier}} escalated"),
                    unit="reqps",
                ),
                panel(
                    "Should have been the expert's",
                    Query(
                        share(
                            increase(_VERDICTS, "1d", "tier", _WORSE),
                            increase(_VERDICTS, "1d", "tier", _JUDGED),
                        ),
                        "{{tier}}",
                    ),
                    unit="percentunit",
                    steps=((0.15, "red"),),
                    help="Of the answers checked over the last day; above 15% it alerts.",
                ),
                panel(
                    "Predicted quality",
                    Query(
                        f"{per_second('penstock_route_quality_total', 'kind', '')}"
                        f" / ignoring (kind) group_left () {per_second(_ANSWERS, where='')}",
                        "{{kind}}",
                    ),
                    unit="percentunit",
                    most=1,
                ),
                panel(
                    "CPU time of a rating",
                    *quantiles("penstock_route_seconds", by="", where=""),
                    unit="s",
                ),
            ),
        ),
        Row(
            "Money",
            (
                panel(
                    "Dollars an hour: routed against always the expert",
                    Query(f"3600 * {per_second(_DOLLARS, 'kind', '')}", "{{kind}}"),
                    unit="currencyUSD",
                ),
                panel(
                    "Dollars per 1k tokens",
                    Query(f"1e3 * {dollars_per_token('1h', 'model_name', MODEL)}", "{{model_name}}"),
                    unit="currencyUSD",
                ),
                panel(
                    "Dollars an hour by model",
                    Query(
                        f"3600 * {per_second('penstock_cost_dollars_total', 'model_name')}",
                        "{{model_name}}",
                    ),
                    unit="currencyUSD",
                    kind="areas",
                ),
                panel(
                    "Response cache hits",
                    Query(
                        share(
                            per_second(
                                "penstock_cache_requests_total",
                                "model_name",
                                f'{MODEL},outcome=~"hit|semantic|shared"',
                            ),
                            per_second(
                                "penstock_cache_requests_total",
                                "model_name",
                                f'{MODEL},outcome!="bypass"',
                            ),
                        ),
                        "{{model_name}}",
                    ),
                    unit="percentunit",
                    most=1,
                ),
                panel(
                    "Tokens that the cache saved",
                    Query(per_second("penstock_cache_saved_tokens_total", "model_name"), "{{model_name}}"),
                    unit="si:tok/s",
                ),
                panel(
                    "Prompt tokens left out",
                    Query(
                        per_second("penstock_tokens_total", "model_name", f'{MODEL},kind="saved"'),
                        "{{model_name}}",
                    ),
                    unit="si:tok/s",
                ),
            ),
        ),
    ),
)
