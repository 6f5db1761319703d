"""The front door and its tenants: answers, refusals, replicas, who uses how much."""

from __future__ import annotations

from penstock.observe.dashboards.board import (
    MODEL,
    Board,
    Query,
    Row,
    mean_of,
    panel,
    per_second,
    quantiles,
)

_REPLICA = "model_name, replica"
_TENANTS = 'tenant=~"$tenant"'


def _replicas(metric: str) -> tuple[Query, ...]:
    return (Query(f"sum by ({_REPLICA}) ({metric}{{{MODEL}}})", "{{model_name}} {{replica}}"),)


def _top_tenants(counter: str, where: str = _TENANTS, times: int = 1) -> tuple[Query, ...]:
    rate = per_second(counter, "tenant", where)
    return (Query(f"topk(10, {rate})" if times == 1 else f"topk(10, {times} * {rate})", "{{tenant}}"),)


BOARD = Board(
    name="penstock-gateway",
    title="Penstock: gateway and tenants",
    help="The front door and its tenants.",
    choices={
        "model": "label_values(penstock_requests_total, model_name)",
        "tenant": "label_values(penstock_tenant_requests_total, tenant)",
    },
    rows=(
        Row(
            "Answers",
            (
                panel(
                    "HTTP by status",
                    Query(per_second("penstock_http_requests_total", "status", ""), "{{status}}"),
                    unit="reqps",
                    kind="areas",
                    help="499: the client left first.",
                ),
                panel(
                    "Refused, by code",
                    Query(per_second("penstock_requests_refused_total", "code"), "{{code}}"),
                    unit="reqps",
                    kind="areas",
                ),
                panel(
                    "Second tries",
                    Query(per_second("penstock_retries_total", "model_name"), "{{model_name}} retried"),
                    Query(
                        per_second("penstock_fallbacks_total", "model_name, to"),
                        "{{model_name}} to {{to}}",
                    ),
                    unit="reqps",
                ),
                panel("First byte", *quantiles("penstock_first_byte_seconds"), unit="s"),
                panel(
                    "Where the time goes (mean)",
                    Query(
                        f"{per_second('penstock_phase_seconds_total', 'phase')}"
                        f" / on () group_left () {per_second('penstock_requests_total')}",
                        "{{phase}}",
                    ),
                    unit="s",
                    help="Prefill and decode lie inside an attempt.",
                ),
                panel(
                    "Lengths (mean)",
                    Query(mean_of("penstock_request_prompt_tokens", "model_name"), "{{model_name}} in"),
                    Query(mean_of("penstock_request_completion_tokens", "model_name"), "{{model_name}} out"),
                ),
            ),
        ),
        Row(
            "Replicas",
            (
                panel("Requests at each", *_replicas("penstock_replica_requests")),
                panel(
                    "Load",
                    Query(
                        f"sum by ({_REPLICA}) (penstock_replica_requests{{{MODEL}}})"
                        f" / max by ({_REPLICA}) (penstock_replica_capacity{{{MODEL}}})",
                        "{{model_name}} {{replica}}",
                    ),
                    unit="percentunit",
                    help="Requests it has, of those it should have at once.",
                ),
                panel(
                    "Healthy",
                    Query(
                        f"max by ({_REPLICA}) (penstock_replica_healthy{{{MODEL}}})",
                        "{{model_name}} {{replica}}",
                    ),
                    most=1,
                ),
                panel("Waiting in servers", *_replicas("penstock_replica_waiting")),
                panel(
                    "KV cache of servers",
                    *_replicas("penstock_replica_kv_usage_ratio"),
                    unit="percentunit",
                ),
                panel(
                    "Tokens waiting",
                    Query(f"sum by (model_name) (penstock_queue_tokens{{{MODEL}}})", "{{model_name}}"),
                ),
            ),
        ),
        Row(
            "Tenants",
            (
                panel("Requests", *_top_tenants("penstock_tenant_requests_total"), unit="reqps"),
                panel(
                    "Tokens",
                    *_top_tenants("penstock_tokens_total", f'{_TENANTS},{MODEL},kind=~"prompt|completion"'),
                    unit="si:tok/s",
                ),
                panel(
                    "Dollars an hour",
                    *_top_tenants("penstock_cost_dollars_total", f"{_TENANTS},{MODEL}", times=3600),
                    unit="currencyUSD",
                ),
                panel(
                    "Refused or failed",
                    *_top_tenants("penstock_tenant_requests_total", f'{_TENANTS},outcome=~"shed|failed"'),
                    unit="reqps",
                ),
                panel(
                    "Tokens by kind",
                    Query(per_second("penstock_tokens_total", "kind", f"{_TENANTS},{MODEL}"), "{{kind}}"),
                    unit="si:tok/s",
                    help="Cached ones are part of the prompt's; saved ones were left out of it.",
                ),
                panel(
                    "Response cache",
                    Query(per_second("penstock_cache_requests_total", "outcome"), "{{outcome}}"),
                    unit="reqps",
                    kind="areas",
                ),
            ),
        ),
        Row(
            "Front processes",
            (
                panel(
                    "CPU",
                    Query(
                        per_second("penstock_process_cpu_seconds_total", "instance, process", ""),
                        "{{instance}} {{process}}",
                    ),
                    unit="percentunit",
                    help="1 is a whole core: more front processes help from there on.",
                ),
                panel(
                    "Memory",
                    Query("penstock_process_memory_bytes", "{{instance}} {{process}}"),
                    unit="bytes",
                ),
                panel(
                    "Late event loop",
                    *quantiles("penstock_loop_lag_seconds", by="instance", where=""),
                    unit="s",
                ),
                panel(
                    "Traces",
                    Query(per_second("penstock_traces_total", "outcome", ""), "{{outcome}}"),
                    unit="ops",
                ),
            ),
        ),
    ),
)
