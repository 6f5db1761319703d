"""When each alert fires, as plain data: Prometheus's rules and the console's own alerts are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["page", "warn", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """An alert fires when its figure has been beyond `bound` for `hold` seconds."""

    name: str
    severity: Severity
    bound: float  # as it is, or as a multiple of what is promised, allowed or usual: the rule says which
    window: int = 300  # seconds that rates and quantiles are taken over
    hold: int = 300  # seconds
    least: int = 0  # fewer requests than this in the window say nothing; of errors, fewer failures


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRate:
    """Fires when the budget of bad requests is used up `factor` times too fast, over both windows.

    The long window says that it matters, the short one that it still goes on.
    """

    severity: Severity
    factor: float
    long: int  # seconds
    short: int

    def bound(self, target: float) -> float:
        """The share of bad requests from which on it fires. A mild target allows more than there can be:
        when nearly everything is bad it fires whatever the target."""
        return min(self.factor * (1 - target), NEARLY_ALL)


NEARLY_ALL: Final = 0.9
# Of a budget for 30 days: 2% in an hour, 5% in six hours, 10% in three days.
BURN_RATES: Final = (
    BurnRate(severity="page", factor=14.4, long=3600, short=300),
    BurnRate(severity="page", factor=6, long=6 * 3600, short=1800),
    BurnRate(severity="warn", factor=1, long=3 * 86400, short=6 * 3600),
)
LEAST_BAD: Final = 5  # bad requests in the long window; fewer call nobody, whatever their share

DAY: Final = 86400  # what is usual is read off this time before the window

DOWN: Final = Threshold(name="PenstockDown", severity="page", bound=1, hold=60)
NO_REPLICA: Final = Threshold(name="PenstockNoReplica", severity="page", bound=1, hold=60)
ERRORS: Final = Threshold(name="PenstockErrors", severity="page", bound=1, hold=120, least=5)
TTFT_PAGE: Final = Threshold(name="PenstockTtftVeryHigh", severity="page", bound=4, hold=120, least=20)
OUT_OF_MEMORY: Final = Threshold(name="PenstockOutOfMemory", severity="page", bound=0, hold=0)

TTFT_WARN: Final = Threshold(name="PenstockTtftHigh", severity="warn", bound=2, least=20)
TPOT: Final = Threshold(
    name="PenstockTpotDeviates",
    severity="warn",
    bound=1.5,
    window=900,
    hold=600,
    least=20,
)
TAIL: Final = Threshold(
    name="PenstockTailLatency", severity="warn", bound=10, window=900, hold=600, least=100
)
QUEUE: Final = Threshold(name="PenstockQueueGrowing", severity="warn", bound=10)  # requests that wait
REPLICA: Final = Threshold(name="PenstockReplicaUnhealthy", severity="warn", bound=1, hold=300)
RESTARTS: Final = Threshold(name="PenstockEngineRestarts", severity="warn", bound=2, window=1800, hold=0)
GPU_MEMORY: Final = Threshold(name="PenstockGpuMemoryHigh", severity="warn", bound=0.85)
GPU_MEMORY_FULL: Final = Threshold(name="PenstockGpuMemoryNearlyFull", severity="warn", bound=0.90)
GPU_FAULT: Final = Threshold(name="PenstockGpuFault", severity="warn", bound=0, window=600, hold=0)
GPU_THROTTLED: Final = Threshold(name="PenstockGpuThrottled", severity="warn", bound=0, hold=600)
ROUTE_QUALITY: Final = Threshold(
    name="PenstockRouteQuality", severity="warn", bound=0.15, window=DAY, hold=600, least=50
)

COST: Final = Threshold(name="PenstockCostRising", severity="info", bound=1.2, window=3600, hold=1800)
THROUGHPUT: Final = Threshold(
    name="PenstockThroughputFalling",
    severity="info",
    bound=0.7,
    window=900,
    hold=900,
)
# Versions of a model that are served at once. A rolling deploy is over by then.
DRIFT: Final = Threshold(name="PenstockModelDrift", severity="info", bound=1, hold=900)

THRESHOLDS: Final = (
    *(DOWN, NO_REPLICA, ERRORS, TTFT_PAGE, OUT_OF_MEMORY),
    *(TTFT_WARN, TPOT, TAIL, QUEUE, REPLICA, RESTARTS),
    *(GPU_MEMORY, GPU_MEMORY_FULL, GPU_FAULT, GPU_THROTTLED, ROUTE_QUALITY),
    *(COST, THROUGHPUT, DRIFT),
)
