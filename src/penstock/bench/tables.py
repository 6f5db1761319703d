"""A table as plain text in rows: `report` prints it, `page` sets it in HTML. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from penstock.bench.figures import load
from penstock.bench.statistics import Run

Tone = Literal["", "strong", "good", "bad"]
METRICS = {"ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "e2e": "end to end"}


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    texts: int = 1  # columns that are words, aligned to the left
    note: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence between tables."""

    text: str
    tone: Tone = ""


Item = Table | Note


def surroundings(content: dict[str, Any]) -> Note:
    host, version = content["machine"], content["versions"]["penstock"]
    return Note(
        f"{host['processor']}, {host['cores']} cores, {host['memory_gib']} GiB; penstock {version}, "
        f"{content['measured_at']}"
    )


def label(run: Run) -> str:
    return f"{run.workload} {load(run)}" if run.mode == "sweep" else f"{run.workload} {run.mode}"


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f}" if seconds >= 0.1 else f"{seconds * 1000:.1f}"


def number(value: float | None) -> str:
    """As many digits as say something: 0.0123, 1.23, 12.3, 123, 12,345. A count is whole."""
    if value is None:
        return "-"
    if isinstance(value, int) or value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f}" if abs(value) >= 1 else f"{value:.3g}"
