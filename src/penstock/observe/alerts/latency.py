"""How long requests take, beyond what the burn rates say of the promises."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.observe.alerts import thresholds
from penstock.observe.alerts.rule import Rule, alert
from penstock.observe.alerts.thresholds import Threshold
from penstock.observe.objectives import Promises
from penstock.observe.promql import increase, mean, quantile, span

_TTFT = "penstock_time_to_first_token_seconds"
_TPOT = "penstock_time_per_output_token_seconds"
_E2E = "penstock_e2e_request_latency_seconds"


def rules(promises: Promises) -> Iterator[Rule]:
    for threshold in (thresholds.TTFT_PAGE, thresholds.TTFT_WARN):
        yield _ttft(threshold, promises)
    yield _tpot()
    yield _tail()


def _ttft(threshold: Threshold, promises: Promises) -> Rule:
    """One rule, whatever is promised for single models: rules of the same name pass for a mistake."""
    window = span(threshold.window)
    late = []
    for promised, models in promises.ttft():
        where = ",".join(filter(None, ('class!="batch"', models)))  # batch work waits by design
        p99 = quantile(0.99, _TTFT, window, "model_name", where)
        count = increase(f"{_TTFT}_count", window, "model_name", where)
        late.append(f"{p99} > {threshold.bound * promised:.6g}\nand {count} >= {threshold.least}")
    return alert(
        threshold,
        "\nor ".join(late),
        "The first token of {{ $labels.model_name }} takes {{ $value | humanizeDuration }} (p99).",
        "Queue depth, then prefill: the slow-request log names the causes. Add a replica if requests "
        "wait; look for long prompts and lost prefix hits if they do not.",
    )


def _tpot() -> Rule:
    threshold = thresholds.TPOT
    window = span(threshold.window)
    now = mean(_TPOT, window, "model_name")
    usual = mean(_TPOT, span(thresholds.DAY), "model_name", shift=window)
    count = increase(f"{_TPOT}_count", window, "model_name")
    return alert(
        threshold,
        f"({now})\n/ ({usual}) > {threshold.bound:g}\nand {count} >= {threshold.least}",
        "Tokens of {{ $labels.model_name }} take {{ $value | humanize }} times as long as in the last day.",
        "Larger batches, long prompts between decodes, a throttled GPU, or another process on the device.",
    )


def _tail() -> Rule:
    threshold = thresholds.TAIL
    window = span(threshold.window)
    p99, p50 = (quantile(q, _E2E, window, "model_name") for q in (0.99, 0.5))
    count = increase(f"{_E2E}_count", window, "model_name")
    return alert(
        threshold,
        f"{p99}\n/ {p50} > {threshold.bound:g}\nand {count} >= {threshold.least}",
        "The slowest requests of {{ $labels.model_name }} take {{ $value | humanize }} times the median.",
        "The slow-request log says what they had in common: answers of very different length are no fault, "
        "preemption, retries and queueing are.",
    )
