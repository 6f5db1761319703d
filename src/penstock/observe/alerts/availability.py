"""Whether requests are answered at all: servers, replicas, engines, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.observe.alerts import thresholds
from penstock.observe.alerts.rule import Rule, alert
from penstock.observe.objectives import Promises
from penstock.observe.promql import increase, rate, span

_STARVED: Final = 'cause="out_of_memory"'


def rules(promises: Promises) -> Iterator[Rule]:
    yield alert(
        thresholds.DOWN,
        f'up{{job="penstock"}} < {thresholds.DOWN.bound:g}',
        "{{ $labels.instance }} does not answer Prometheus.",
        "Is the process there, and does /health answer? The end of its log says why it ended.",
    )
    yield alert(
        thresholds.NO_REPLICA,
        f"min by (instance, model_name) (penstock_model_replicas_healthy) < {thresholds.NO_REPLICA.bound:g}",
        "{{ $labels.model_name }} has no healthy replica on {{ $labels.instance }}: its requests fail.",
        "The console lists the replicas and why each is out; the log says when each was lost.",
    )
    yield alert(
        thresholds.REPLICA,
        "min by (instance, model_name, replica) (penstock_replica_healthy)"
        f" < {thresholds.REPLICA.bound:g}"
        " unless max by (instance, model_name, replica) (penstock_replica_drained) == 1",
        "{{ $labels.replica }} of {{ $labels.model_name }} gets no requests from {{ $labels.instance }}.",
        "The console says what is wrong with it. One that an administrator has drained does not count.",
    )
    yield _errors(promises)
    memory, window = thresholds.OUT_OF_MEMORY, span(thresholds.OUT_OF_MEMORY.window)
    yield alert(
        memory,
        f"{increase('penstock_engine_oom_total', window, 'model_name')} > {memory.bound:g}\n"
        f"or {increase('penstock_engine_deaths_total', window, 'model_name', _STARVED)} > {memory.bound:g}",
        "An engine of {{ $labels.model_name }} has run out of memory.",
        "If it is still there, it computes smaller steps; if it died of it, it is started again. Lower "
        "max_running or memory_fraction, or find who else uses the device or the machine.",
    )
    restarts, window = thresholds.RESTARTS, span(thresholds.RESTARTS.window)
    yield alert(
        restarts,
        f"{increase('penstock_engine_restarts_total', window, 'model_name, engine')} > {restarts.bound:g}",
        "Engine {{ $labels.engine }} of {{ $labels.model_name }} dies again and again.",
        "The log has the cause of each death: want of memory, a driver's fault, or a request that kills.",
    )


def _errors(promises: Promises) -> Rule:
    errors, counter = thresholds.ERRORS, "penstock_requests_total"
    window = span(errors.window)
    failed = rate(counter, window, "model_name", 'outcome="failed"')
    judged = rate("penstock_slo_requests_total", window, "model_name", 'objective="errors"')
    failures = increase(counter, window, "model_name", 'outcome="failed"')
    allowed = errors.bound * (1 - promises.target("errors"))
    return alert(
        errors,
        f"{failed} / {judged} > {allowed:.6g}\nand {failures} >= {errors.least}",
        "{{ $value | humanizePercentage }} of the requests for {{ $labels.model_name }} fail.",
        "Which replica fails, and how: the log has a line for each failure, the console the recent requests.",
    )
