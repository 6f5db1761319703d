"""The first look: whether the promises are kept, what comes in, what waits, where the time goes."""

from __future__ import annotations

from penstock.observe.alerts.burn import ratio
from penstock.observe.dashboards.board import (
    MODEL,
    WINDOW,
    Board,
    Query,
    Row,
    number,
    panel,
    per_second,
    quantiles,
    share,
)
from penstock.observe.promql import quantile, rate

_REQUESTS = "penstock_requests_total"
_ALL = per_second(_REQUESTS, where=f'{MODEL},outcome!="rejected"')
_TTFT = "penstock_time_to_first_token_seconds"
_TARGET = "(1 - max by (objective) (penstock_slo_target_ratio))"


def _burn(window: int) -> str:
    return f"{ratio(window)}{{{MODEL}}} / on (objective) group_left () {_TARGET}"


BOARD = Board(
    name="penstock-overview",
    title="Penstock: overview",
    help="Whether the promises are kept, what comes in, what waits.",
    rows=(
        Row(
            "Now",
            (
                number("Requests", per_second(_REQUESTS), "reqps"),
                number(
                    "TTFT p99",
                    quantile(0.99, _TTFT, WINDOW, where=MODEL),
                    "s",
                    steps=((0.5, "orange"), (2, "red")),
                ),
                number(
                    "Failed",
                    share(per_second(_REQUESTS, where=f'{MODEL},outcome="failed"'), _ALL),
                    "percentunit",
                    steps=((0.001, "orange"), (0.01, "red")),
                ),
                number(
                    "Tokens out",
                    per_second("penstock_tokens_total", where=f'{MODEL},kind="completion"'),
                    "si:tok/s",
                ),
                number(
                    "Waiting",
                    f"sum(penstock_queue_requests{{{MODEL}}})",
                    steps=((10, "orange"), (100, "red")),
                ),
                number(
                    "Alerts",
                    'count(ALERTS{alertname=~"Penstock.*",alertstate="firing"}) or vector(0)',
                    steps=((1, "red"),),
                ),
            ),
        ),
        Row(
            "Promises",
            (
                panel(
                    "Burn rate, 1 hour",
                    Query(_burn(3600), "{{model_name}} {{objective}}"),
                    help="1: the budget of bad requests lasts just as long as it should. 14.4 pages.",
                    steps=((1, "orange"), (14.4, "red")),
                ),
                panel(
                    "Burn rate, 3 days",
                    Query(_burn(3 * 86400), "{{model_name}} {{objective}}"),
                    steps=((1, "orange"),),
                ),
                panel(
                    "Bad requests by objective",
                    Query(
                        per_second("penstock_slo_requests_total", "objective", f'{MODEL},verdict="bad"'),
                        "{{objective}}",
                    ),
                    unit="reqps",
                    help="Slow, failed or shed.",
                ),
            ),
        ),
        Row(
            "Time",
            (
                panel("Time to first token", *quantiles(_TTFT), unit="s"),
                panel(
                    "Time per output token",
                    *quantiles("penstock_time_per_output_token_seconds"),
                    unit="s",
                ),
                panel(
                    "End to end",
                    *quantiles("penstock_e2e_request_latency_seconds"),
                    unit="s",
                ),
                panel(
                    "Time to first token, all of it",
                    Query(rate(f"{_TTFT}_bucket", WINDOW, "le", MODEL), "{{le}}"),
                    unit="s",
                    kind="heatmap",
                ),
                panel("Time in the queue", *quantiles("penstock_queue_seconds"), unit="s"),
                panel(
                    "Slow requests by cause",
                    Query(per_second("penstock_slow_requests_total", "cause"), "{{cause}}"),
                    unit="reqps",
                    kind="areas",
                ),
            ),
        ),
        Row(
            "Traffic",
            (
                panel(
                    "Requests by outcome",
                    Query(per_second(_REQUESTS, "outcome"), "{{outcome}}"),
                    unit="reqps",
                    kind="areas",
                ),
                panel(
                    "Tokens",
                    Query(per_second("penstock_tokens_total", where=f'{MODEL},kind="prompt"'), "in"),
                    Query(per_second("penstock_tokens_total", where=f'{MODEL},kind="completion"'), "out"),
                    unit="si:tok/s",
                ),
                panel(
                    "Waiting by class",
                    Query(f"sum by (class) (penstock_queue_requests{{{MODEL}}})", "{{class}}"),
                    kind="areas",
                ),
                panel(
                    "Healthy replicas",
                    Query(
                        f"min by (instance, model_name) (penstock_model_replicas_healthy{{{MODEL}}})",
                        "{{model_name}} {{instance}}",
                    ),
                ),
                panel(
                    "KV cache in use",
                    Query(f"max by (model_name) (penstock_kv_usage_ratio{{{MODEL}}})", "{{model_name}}"),
                    unit="percentunit",
                    most=1,
                ),
                panel(
                    "Prompt tokens from the prefix cache",
                    Query(
                        share(
                            per_second("penstock_prefix_hit_tokens_total", "model_name"),
                            per_second("penstock_prefix_queried_tokens_total", "model_name"),
                        ),
                        "{{model_name}}",
                    ),
                    unit="percentunit",
                    most=1,
                ),
            ),
        ),
    ),
)
