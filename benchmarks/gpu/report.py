"""The figures as a table for people."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .ceilings import Ceilings
from .driving import Baseline
from .stated import BASELINES, FIGURES, SOURCE, START, Stated, verdict
from .subjects import Subject
from .workloads import Workload


@dataclass(frozen=True, slots=True)
class Result:
    """One workload on one subject: the first pass, which compiles and captures, and the measured ones."""

    subject: Subject
    workload: Workload
    cold: float
    values: tuple[float, ...]
    walls: tuple[float, ...]  # seconds
    steps: int
    cached: int
    limit: float | None
    limit_unshared: float | None  # the same if everybody reads a shared prefix alone

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def lower_is_better(self) -> bool:
        return self.workload.unit == "ms a token"

    @property
    def reached(self) -> float | None:
        """Share of the limit."""
        if self.limit is None:
            return None
        return self.limit / self.value if self.lower_is_better else self.value / self.limit

    def as_json(self) -> dict[str, Any]:
        stated = FIGURES.get((self.subject.model, self.subject.precision), {}).get(self.workload.name)
        return {
            "subject": asdict(self.subject),
            "workload": self.workload.name,
            "what": self.workload.what,
            "unit": self.workload.unit,
            "value": self.value,
            "values": list(self.values),
            "cold": self.cold,
            "wall_seconds": list(self.walls),
            "steps": self.steps,
            "cached_prompt_tokens": self.cached,
            "limit": self.limit,
            "limit_if_prefixes_are_not_shared": self.limit_unshared,
            "reached": self.reached,
            "stated": None if stated is None else {"source": SOURCE, **asdict(stated)},
            "verdict": verdict(stated, self.value, lower_is_better=self.lower_is_better),
        }


def results_table(results: Sequence[Result]) -> list[str]:
    head = ("subject", "workload", "unit", "value", "spread", "first", "limit", "reached", "peer", "bar", "")
    rows = [head]
    for result in results:
        stated = FIGURES.get((result.subject.model, result.subject.precision), {}).get(result.workload.name)
        rows.append(
            (
                result.subject.name,
                result.workload.name,
                result.workload.unit,
                _number(result.value),
                f"{_number(min(result.values))}-{_number(max(result.values))}",
                _number(result.cold),
                _number(result.limit),
                "" if result.reached is None else f"{result.reached:.0%}",
                _number(None if stated is None else stated.peer),
                _number(None if stated is None else stated.bar),
                verdict(stated, result.value, lower_is_better=result.lower_is_better),
            )
        )
    return [*aligned(rows), "", f"peer: {SOURCE}"]


def baselines_table(subject: str, ours: float, baselines: Sequence[Baseline]) -> list[str]:
    """Beside each the bar it is judged by, if it has one."""
    rows = [("G1 on the same engine", "tok/s", "times as fast", "bar", "", "requests measured", "how")]
    rows.append((subject, _number(ours), "", "", "", "all", "continuous batching"))
    for each in baselines:
        ratio, bar = ours / each.tokens_per_second, BASELINES.get(each.name)
        says = verdict(Stated(None, bar, None), ratio, lower_is_better=False)
        rows.append(
            (
                each.name,
                _number(each.tokens_per_second),
                f"{ratio:.1f}x",
                "" if bar is None else f"{bar:g}x",
                says,
                str(each.measured),
                each.how,
            )
        )
    bars = " and ".join(f"{bar:g}x against {name}" for name, bar in BASELINES.items())
    return [*aligned(rows), "", f"bars: {bars}; other sizes are shown and not judged"]


def start_table(starts: dict[str, Any]) -> list[str]:
    rows: list[tuple[str, ...]] = [("start to first token", "s", "import", "load", "first token", "bar", "")]
    for kind, run in starts.items():
        total, *parts = (f"{run[name]:.1f}" for name in ("total", "import", "load", "first_token"))
        says = verdict(START[kind], run["total"], lower_is_better=True)
        rows.append((f"kernels {kind}", total, *parts, f"{START[kind].bar:g}", says))
    return aligned(rows)


def ceilings_lines(found: Ceilings) -> list[str]:
    memory = f"read {found.read_tb_per_second:.2f} TB/s, copy {found.copy_tb_per_second:.2f} TB/s"
    rates = f"bf16 {found.bf16_tflop_per_second:.0f} TFLOP/s, fp8 {found.fp8_tflop_per_second:.0f} TFLOP/s"
    lines = [f"{found.device}: memory {memory}; matmul {rates}"]
    for model, precisions in found.step_ms.items():
        for precision, batches in precisions.items():
            shown = ", ".join(f"{batch}: {ms:.2f}" for batch, ms in batches.items())
            lines.append(f"matmuls of one step, {model} {precision}, ms by batch: {shown}")
    if found.fp8_tflop_per_second:
        lines.append("fp8: with a scale for each row and channel or without scales, whichever is faster")
    return lines


def accuracy_table(found: Sequence[dict[str, Any]]) -> list[str]:
    rows = [("computed in", "perplexity", "difference", "KL nats", "same likeliest", "greedy answers equal")]
    for each in found:
        alike = f"{each['greedy_answers_equal']} of {len(each['greedy_equal_tokens'])}"
        least = min(each["greedy_equal_tokens"])
        rows.append(
            (
                each["way"],
                f"{each['perplexity']:.4f}",
                f"{each['difference']:+.3%}",
                f"{each['divergence']:.5f}",
                f"{each['agreement']:.2%}",
                f"{alike}; all for {least} tokens or more",
            )
        )
    return aligned(rows)


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A table in Markdown that is readable as it stands."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = tuple("-" * width for width in widths)
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (rows[0], rule, *rows[1:])
    ]
    return [f"| {line} |" for line in lines]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
