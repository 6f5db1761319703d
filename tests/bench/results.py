"""Results made by hand: requests whose times are known, without a server or an engine."""

from __future__ import annotations

from typing import Any

from penstock.bench.ceilings import Ceilings
from penstock.bench.report import report
from penstock.bench.statistics import Run, Timing, summarise

CEILINGS = Ceilings(
    device="cpu",
    threads=2,
    memory_read_gb_per_second=20.0,
    cache_read_gb_per_second=56.0,
    fp32_gflop_per_second=300.0,
    int8_gop_per_second=1200.0,
)
ENGINE = {"steps": 10, "tokens_per_step": 2.0, "kv_waste": 0.031, "prefix_hit_rate": 0.5, "preemptions": 1}


def run(mode: str = "online", wall: float = 2.0, *, requests: int = 1, **changes: Any) -> Run:
    """Each request has two tokens of output, at half of the wall time and at its end."""
    times = [
        Timing(0.0, wanted=2, input_tokens=5, tokens_at=[wall / 2, wall], output_tokens=2, ended=wall)
        for _ in range(requests)
    ]
    options = {"workload": "W2", "mode": mode, "repeat": 0, "wall": wall, **changes}
    return summarise(options.pop("timings", times), **options)


def content(runs: list[Run], *, kind: str = "serve", **changes: Any) -> dict[str, Any]:
    """A result as it is written; what is not an option of `report` is of the subject."""
    options = {name: changes.pop(name) for name in ("price_per_hour",) if name in changes}
    return report(
        kind=kind,
        command=["penstock", "bench", kind, "--salt", "a b"],
        subject=changes,
        runs=runs,
        ceilings=CEILINGS,
        **options,
    )
