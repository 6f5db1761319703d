"""Whether the machines keep up: the queue, and what an engine gets done."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.observe.alerts import thresholds
from penstock.observe.alerts.rule import Recording, Rule, alert
from penstock.observe.objectives import Promises
from penstock.observe.promql import rate, span

_RECORDED = "penstock:engine_generated_tokens:rate_each"


def rules(promises: Promises) -> Iterator[Rule]:
    queue = thresholds.QUEUE
    yield alert(
        queue,
        f"sum by (model_name) (deriv(penstock_queue_requests[{span(queue.window)}])) > 0\n"
        f"and sum by (model_name) (penstock_queue_requests) > {queue.bound:g}",
        "The queue of {{ $labels.model_name }} has been growing for minutes.",
        "More arrives than is answered: add a replica, or lower what batch tenants may send.",
    )
    threshold = thresholds.THROUGHPUT
    window = span(threshold.window)
    # An engine has a device of its own, so this is the throughput of a GPU.
    tokens = rate("penstock_engine_generated_tokens_total", window, "model_name")
    yield Recording(name=_RECORDED, expr=f"{tokens}\n/ count by (model_name) (penstock_engine_running)")
    # A day's mean would be made low by its quiet hours, and no engine is slow that has nothing to do.
    yield alert(
        threshold,
        f"{_RECORDED}\n/ quantile_over_time(0.9, {_RECORDED}[{span(thresholds.DAY)}] offset {window})"
        f" < {threshold.bound:g}\n"
        f"and sum by (model_name) (avg_over_time(penstock_engine_waiting[{window}])) >= 1",
        "An engine of {{ $labels.model_name }} generates {{ $value | humanizePercentage }} of what it can, "
        "with requests waiting.",
        "Longer prompts or fewer prefix hits, preemptions, a throttled GPU, or a new version that is slower.",
    )
