"""Whether requests are answered at all: servers, replicas, engines, errors."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.observe.alerts import thresholds
from penstock.observe.alerts.rule import Promises, Rule, alert
from penstock.observe.promql import increase, rate, span


def rules(promises: Promises) -> Iterator[Rule]:
    yield alert(
        thresholds.DOWN,
        f'up{{job="penstock"}} < {thresholds.DOWN.bound:g}',
        "{{ $labels.instance }} does not answer Prometheus.",
        "Is the process there, and does /health answer? The end of its log says why it ended.",
    )
    yield alert(
        thresholds.NO_REPLICA,
        f"max by (model_name) (penstock_replica_healthy) < {thresholds.NO_REPLICA.bound:g}",
        "{{ $labels.model_name }} has no healthy replica: its requests fail or wait.",
        "The console lists the replicas and why each is out; the log says when each was lost.",
    )
    yield alert(
        thresholds.REPLICA,
        f"max by (model_name, replica) (penstock_replica_healthy) < {thresholds.REPLICA.bound:g}"
        " unless max by (model_name, replica) (penstock_replica_drained) == 1",
        "{{ $labels.replica }} of {{ $labels.model_name }} gets no requests.",
        "The console says what is wrong with it. One that an administrator has drained does not count.",
    )
    yield _errors(promises)
    memory, window = thresholds.OUT_OF_MEMORY, span(thresholds.OUT_OF_MEMORY.window)
    yield alert(
        memory,
        f"{increase('penstock_engine_oom_total', window, 'model_name, engine')} > {memory.bound:g}",
        "Engine {{ $labels.engine }} of {{ $labels.model_name }} has run out of memory.",
        "Steps are computed in smaller parts meanwhile. Lower max_running or memory_fraction, "
        "or find who else uses the device.",
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
    all_of_them = rate(counter, window, "model_name", 'outcome!="rejected"')
    failures = increase(counter, window, "model_name", 'outcome="failed"')
    allowed = errors.bound * (1 - promises.slo.errors_target)
    return alert(
        errors,
        f"{failed} / {all_of_them} > {allowed:.6g}\nand {failures} >= {errors.least}",
        "{{ $value | humanizePercentage }} of the requests for {{ $labels.model_name }} fail.",
        "Which replica fails, and how: the log has a line for each failure, the console the recent requests.",
    )
