"""Engines that Penstock runs itself: what they compute, what they hold, how long each part takes."""

from __future__ import annotations

from penstock.observe.dashboards.board import MODEL, Board, Query, Row, panel, per_second, quantiles, share

_ENGINE = "model_name, engine"
_NAME = "{{model_name}} {{engine}}"


def _now(metric: str) -> tuple[Query, ...]:
    return (Query(f"sum by ({_ENGINE}) ({metric}{{{MODEL}}})", _NAME),)


def _rate(counter: str) -> tuple[Query, ...]:
    return (Query(per_second(counter, _ENGINE), _NAME),)


def _share(part: str, whole: str) -> tuple[Query, ...]:
    return (Query(share(per_second(part, _ENGINE), per_second(whole, _ENGINE)), _NAME),)


BOARD = Board(
    name="penstock-engine",
    title="Penstock: engine",
    help="Engines that Penstock runs itself.",
    rows=(
        Row(
            "Work",
            (
                panel(
                    "Tokens generated",
                    *_rate("penstock_engine_generated_tokens_total"),
                    unit="si:tok/s",
                ),
                panel("Prompt tokens", *_rate("penstock_engine_prompt_tokens_total"), unit="si:tok/s"),
                panel("Steps", *_rate("penstock_engine_steps_total"), unit="ops"),
                panel("Choices computed", *_now("penstock_engine_running")),
                panel("Choices waiting", *_now("penstock_engine_waiting")),
                panel(
                    "Tokens a step",
                    *_share("penstock_engine_generated_tokens_total", "penstock_engine_steps_total"),
                    help="How well steps are filled.",
                ),
            ),
        ),
        Row(
            "Memory",
            (
                panel(
                    "KV blocks held",
                    *_now("penstock_kv_usage_ratio"),
                    unit="percentunit",
                    most=1,
                    steps=((0.9, "orange"),),
                ),
                panel(
                    "KV blocks by state",
                    Query(f"sum by (state) (penstock_kv_blocks{{{MODEL}}})", "{{state}}"),
                    kind="areas",
                ),
                panel(
                    "Positions allocated in vain",
                    *_now("penstock_kv_waste_ratio"),
                    unit="percentunit",
                ),
                panel(
                    "Prompt tokens from the prefix cache",
                    *_share("penstock_prefix_hit_tokens_total", "penstock_prefix_queried_tokens_total"),
                    unit="percentunit",
                    most=1,
                ),
                panel(
                    "Preemptions",
                    *_rate("penstock_preemptions_total"),
                    unit="ops",
                    help="Requests set back for lack of KV blocks.",
                ),
                panel(
                    "Weights read",
                    *_rate("penstock_engine_read_bytes_total"),
                    unit="Bps",
                    help="Memory was read at least so fast.",
                ),
            ),
        ),
        Row(
            "Time of a choice",
            (
                panel(
                    "Between tokens",
                    *quantiles("penstock_inter_token_latency_seconds"),
                    unit="s",
                ),
                panel(
                    "To the first token",
                    *quantiles("penstock_choice_time_to_first_token_seconds"),
                    unit="s",
                ),
                panel(
                    "Before its first step",
                    *quantiles("penstock_choice_queue_seconds"),
                    unit="s",
                ),
                panel("Prefill", *quantiles("penstock_choice_prefill_seconds"), unit="s"),
                panel("Decode", *quantiles("penstock_choice_decode_seconds"), unit="s"),
                panel(
                    "Choices by ending",
                    Query(per_second("penstock_choices_total", "finished_reason"), "{{finished_reason}}"),
                    unit="ops",
                    kind="areas",
                ),
            ),
        ),
        Row(
            "Trouble, speculation, versions",
            (
                panel(
                    "Steps without memory, failed steps, restarts",
                    *tuple(
                        Query(
                            f"sum by ({_ENGINE}) (increase({counter}{{{MODEL}}}[$__rate_interval]))",
                            f"{_NAME} {what}",
                        )
                        for counter, what in (
                            ("penstock_engine_oom_total", "out of memory"),
                            ("penstock_engine_failed_steps_total", "failed"),
                            ("penstock_engine_restarts_total", "restarts"),
                        )
                    ),
                ),
                panel(
                    "Drafted tokens that were accepted",
                    Query(
                        f"max by (model_name, replica) (penstock_replica_acceptance_ratio{{{MODEL}}})",
                        "{{model_name}} {{replica}}",
                    ),
                    unit="percentunit",
                    most=1,
                ),
                panel(
                    "What is loaded",
                    Query('penstock_model_info{model=~"$model"}'),
                    kind="table",
                    help="Replicas of one model that differ here answer differently.",
                ),
            ),
        ),
    ),
)
