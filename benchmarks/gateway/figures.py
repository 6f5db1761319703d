"""The figures of a run: what each is called, its unit, its bar, and what repeats of it come to. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    title: str
    unit: str
    better: Literal["more", "less"]
    bar: float | None = None
    moonshot: float | None = None
    digits: int = 0

    def meets(self, value: float) -> bool | None:
        if self.bar is None:
            return None
        return value >= self.bar if self.better == "more" else value <= self.bar

    def shown(self, value: float) -> str:
        return f"{value:,.{self.digits}f}"


FIGURES = {
    figure.name: figure
    for figure in (
        Figure("requests_per_cpu", "unstreamed requests per CPU-second", "1/s", "more", 1000, 2500),
        Figure("requests_per_second", "unstreamed requests per second, one core", "1/s", "more"),
        Figure("added_one", "added latency, one client, p50", "ms", "less", 1.2, 0.5, digits=2),
        Figure("added_one_p99", "added latency, one client, p99", "ms", "less", digits=2),
        Figure("added_50_p50", "added latency at 50 req/s, p50", "ms", "less", digits=2),
        Figure("added_50_p99", "added latency at 50 req/s, p99", "ms", "less", digits=2),
        Figure("added_200_p50", "added latency at 200 req/s, p50", "ms", "less", digits=2),
        Figure("added_200_p99", "added latency at 200 req/s, p99", "ms", "less", 6, 2, digits=2),
        Figure("chunks_per_cpu", "streamed chunks per CPU-second, unpaced", "1/s", "more", 25_000, 80_000),
        Figure(
            "paced_chunks_per_cpu", "streamed chunks per CPU-second, paced", "1/s", "more", 25_000, 80_000
        ),
        Figure("added_ttft", "added time to first chunk, 32 streams at once, p50", "ms", "less", digits=2),
        Figure("gap_p99", "paced streams, p99 time between chunks", "ms", "less", digits=1),
        Figure("memory_slope", "memory growth per 10,000 requests", "MB", "less", 1.0, digits=2),
        Figure("memory", "memory at the end (PSS)", "MB", "less"),
        Figure("idle_cpu", "CPU when idle", "%", "less", digits=1),
        Figure("start", "start until the first answer", "s", "less", digits=2),
    )
}


@dataclass(slots=True)
class Delivered:
    """What reached the load generator whole: what a ledger should say."""

    requests: int = 0
    tokens: int = 0  # of answers


@dataclass(slots=True)
class Results:
    """One gateway's figures, every repeat of each."""

    values: dict[str, list[float]] = field(default_factory=dict)
    delivered: Delivered = field(default_factory=Delivered)
    problems: list[str] = field(default_factory=list)  # what went wrong while it was measured
    raw: list[dict[str, Any]] = field(default_factory=list)  # what the load generator said, phase by phase

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def summary(self, name: str) -> dict[str, float] | None:
        values = self.values.get(name)
        if not values:
            return None
        return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Least squares: by how much the second grows when the first grows by one."""
    x_mean = statistics.fmean(x for x, _ in points)
    y_mean = statistics.fmean(y for _, y in points)
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / spread if spread else 0.0
