"""What a dashboard is made of, without a word of Grafana's JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from penstock.observe.promql import mean, quantile, rate

MODEL: Final = 'model_name=~"$model"'  # what the reader of a dashboard has chosen
WINDOW: Final = "$__rate_interval"  # wide enough for the chosen range and the scrape interval

Kind = Literal["lines", "areas", "number", "heatmap", "table"]
Steps = tuple[tuple[float, str], ...]  # from this value on, in this colour; below the first it is green


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""  # with {{label}}s; empty: as Grafana names it


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    queries: tuple[Query, ...]
    unit: str = "short"  # Grafana's name of it
    kind: Kind = "lines"
    help: str = ""
    steps: tuple[
        tuple[float, str], ...
    ] = ()  # from this value on, in this colour; below the first it is green
    most: float | None = None  # top of the axis
    width: int = 8  # of 24


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    name: str  # of its file and in its address
    title: str
    help: str
    rows: tuple[Row, ...]
    # The choices at its top: the name of each, and the query that finds its values.
    choices: dict[str, str] = field(
        default_factory=lambda: {"model": "label_values(penstock_requests_total, model_name)"}
    )


def per_second(counter: str, by: str = "", where: str = MODEL) -> str:
    return rate(counter, WINDOW, by, where)


def share(part: str, whole: str) -> str:
    """0 where there is a whole and no part, nothing where there is no whole."""
    return f"({part} or 0 * {whole}) / {whole}"


def quantiles(histogram: str, by: str = "model_name", where: str = MODEL) -> tuple[Query, ...]:
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(",") if by)
    return tuple(
        Query(quantile(q, histogram, WINDOW, by, where), f"{legend} p{100 * q:g}".strip())
        for q in (0.5, 0.95, 0.99)
    )


def mean_of(histogram: str, by: str, where: str = MODEL) -> str:
    return mean(histogram, WINDOW, by, where)


def panel(
    title: str,
    *queries: Query,
    unit: str = "short",
    kind: Kind = "lines",
    help: str = "",
    steps: Steps = (),
    most: float | None = None,
) -> Panel:
    return Panel(title=title, queries=queries, unit=unit, kind=kind, help=help, steps=steps, most=most)


def number(title: str, expr: str, unit: str = "short", help: str = "", steps: Steps = ()) -> Panel:
    """One large figure, as it is now."""
    return Panel(
        title=title, queries=(Query(expr),), unit=unit, kind="number", help=help, steps=steps, width=4
    )
