"""GPUs: memory, faults, heat. Where there are none, these find nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.observe.alerts import thresholds
from penstock.observe.alerts.rule import Rule, alert
from penstock.observe.objectives import Promises
from penstock.observe.promql import increase, span, summed_by

_XID: Final = "penstock_gpu_xid_errors_total"
_ERROR: Final = "instance, gpu, xid"

# Engines reserve the memory of their KV cache when they start: blocks that no request holds are not in use.
MEMORY_IN_USE: Final = (
    "(sum by (instance, gpu) (penstock_gpu_memory_used_bytes)\n"
    '- (sum by (instance, gpu) (penstock_kv_cache_bytes{gpu!=""}'
    " * ignoring (gpu) group_left () (1 - penstock_kv_usage_ratio))"
    " or 0 * sum by (instance, gpu) (penstock_gpu_memory_used_bytes)))\n"
    "/ sum by (instance, gpu) (penstock_gpu_memory_total_bytes)"
)


def rules(promises: Promises) -> Iterator[Rule]:
    for threshold, action in (
        (thresholds.GPU_MEMORY, "Which model holds it: KV usage by engine. Plan for another GPU."),
        (
            thresholds.GPU_MEMORY_FULL,
            "Requests are preempted next: add a replica or shed batch work.",
        ),
    ):
        yield alert(
            threshold,
            f"{MEMORY_IN_USE} > {threshold.bound:g}",
            "{{ $value | humanizePercentage }} of the memory of GPU {{ $labels.gpu }} of "
            "{{ $labels.instance }} is in use.",
            action,
        )
    window = span(thresholds.GPU_FAULT.window)
    yield alert(
        thresholds.GPU_FAULT,
        # The first error of its number has no count of 0 before it that it could have grown from; it is new
        # only to a Prometheus that has looked at this GPU for as long.
        f"{increase(_XID, window, _ERROR)} > 0\n"
        f"or ({summed_by(_ERROR)} ({_XID}) unless {summed_by(_ERROR)} ({_XID} offset {window})) > 0\n"
        f"and on (instance, gpu) penstock_gpu_memory_total_bytes offset {window}",
        "GPU {{ $labels.gpu }} of {{ $labels.instance }} reported XID {{ $labels.xid }}.",
        "NVIDIA's list of XID errors says whether it is the program, the driver or the card.",
    )
    yield alert(
        thresholds.GPU_THROTTLED,
        'max by (instance, gpu, reason) (penstock_gpu_throttled{reason!="power_cap"}) > 0',
        "GPU {{ $labels.gpu }} of {{ $labels.instance }} runs slower than it could: {{ $labels.reason }}.",
        "Heat, or too little power for the machine: compare temperature and power with the limits.",
    )
