"""Plots as SVG for a page: lines, spans over time, bars with ranges. Pure: numbers in, text out.

Colours are CSS classes of the page (`s0` ... `s5`), so that one plot serves light and dark; lines
differ by their dashes too, so that no plot is read by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 460, 290  # units of the drawing; small, so that text stays legible on a phone
LEFT, RIGHT, TOP, BOTTOM = 58, 20, 12, 44
COLOURS = 6
NAME_LETTERS = 60  # above a bar
LOG_MARGIN = 1.1
MOST_WITH_PARTS = 300  # a range up to which 2 and 5 are ticks too
LOG_FROM = 30  # a range wider than this factor is drawn on a log scale, and the axis says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`low` and `high` are the data's. A linear axis ends at ticks, a log axis just around the data."""

    label: str
    low: float
    high: float
    log: bool = False
    whole: bool = False  # counts: no ticks between two numbers

    @property
    def title(self) -> str:
        return f"{self.label} (log scale)" if self.log else self.label

    def ticks(self) -> list[float]:
        if self.log:
            first, last = self.ends()
            return [tick for tick in _steps(first, last) if first <= tick <= last]
        return _linear_ticks(self.low, self.high, 1.0 if self.whole else 0.0)

    def ends(self) -> tuple[float, float]:
        if self.log:
            return self.low / LOG_MARGIN, self.high * LOG_MARGIN
        ticks = self.ticks()
        return ticks[0], ticks[-1]

    def share(self, value: float) -> float:
        """Where a value is on the axis: 0 at its beginning, 1 at its end."""
        first, last = self.ends()
        if self.log:
            return math.log(max(value, first) / first) / math.log(last / first)
        return (value - first) / (last - first)


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: Sequence[tuple[float, float]]
    marks: bool = False  # a dot at each point, with its values as a tooltip


@dataclass(frozen=True, slots=True)
class Span:
    """One request on a time axis; seconds. Without `first`, no token ever came."""

    start: float
    first: float | None
    end: float
    good: bool


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    value: float
    low: float
    high: float
    text: str
    best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A drawing with what a figure on a page needs beside it."""

    title: str
    note: str  # what is seen, in a sentence; read aloud instead of the drawing
    svg: str
    legend: Sequence[str] = field(default=())


def axis(label: str, values: Sequence[float], *, may_log: bool = False) -> Axis:
    """An axis that holds all values; logarithmic where it may be and they span much."""
    positive = [value for value in values if value > 0]
    high = max(values, default=1.0) or 1.0
    log = may_log and bool(positive) and max(positive) / min(positive) > LOG_FROM
    low = min(positive) if log else min(0.0, min(values, default=0.0))
    return Axis(label=label, low=low, high=high, log=log)


def lines(
    title: str,
    note: str,
    x: Axis,
    y: Axis,
    series: Sequence[Series],
    *,
    limits: Sequence[tuple[float, str]] = (),
) -> Plot:
    """One line for each series; `limits` are upright lines with a name, such as a promised latency."""
    place = _Frame(x, y)
    drawn = [place.grid()]
    for value, name in limits:
        if x.ends()[0] <= value <= x.ends()[1]:
            at = place.x(value)
            side, anchor = (4, "start") if at < WIDTH * 0.7 else (-4, "end")
            drawn.append(
                f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
                f'<text class="limit-name" text-anchor="{anchor}" x="{at + side:.1f}" y="{TOP + 11}">'
                f"{escape(name)}</text>"
            )
    for number, one in enumerate(series):
        path = " ".join(f"{place.x(a):.1f},{place.y(b):.1f}" for a, b in one.points)
        style = f"s{number % COLOURS}"
        drawn.append(f'<polyline class="line {style}" points="{path}"/>')
        if one.marks:
            drawn += [
                f'<circle class="dot {style}" cx="{place.x(a):.1f}" cy="{place.y(b):.1f}" r="3.5">'
                f"<title>{escape(one.name)}: {number_text(a)}, {number_text(b)}</title></circle>"
                for a, b in one.points
            ]
    legend = [one.name for one in series] if len(series) > 1 else ()
    return Plot(title=title, note=note, svg=_svg(title, note, HEIGHT, drawn), legend=legend)


def spans(title: str, note: str, requests: Sequence[Span]) -> Plot:
    """Each request is a row: thin while it waits for its first token, thick while its tokens come."""
    ordered = sorted(requests, key=lambda span: span.start)
    x = axis("seconds since the start", [span.end for span in ordered])
    y = Axis(label="requests, in the order they were sent", low=0, high=max(len(ordered), 1), whole=True)
    place = _Frame(x, y)
    thick = max(1.0, min(7.0, 0.7 * (HEIGHT - TOP - BOTTOM) / max(len(ordered), 1)))
    drawn = [place.grid()]
    for number, span in enumerate(ordered):
        at = place.y(number + 0.5)
        first = span.end if span.first is None else span.first
        drawn.append(
            f'<line class="{"wait" if span.good else "wait bad"}" x1="{place.x(span.start):.1f}" '
            f'x2="{place.x(first):.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
        )
        if span.first is not None:
            drawn.append(
                f'<line class="{"answer" if span.good else "answer bad"}" stroke-width="{thick:.1f}" '
                f'x1="{place.x(first):.1f}" x2="{place.x(span.end):.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
            )
        elif not span.good:
            drawn.append(f'<circle class="failure" cx="{place.x(span.end):.1f}" cy="{at:.1f}" r="3"/>')
    return Plot(title=title, note=note, svg=_svg(title, note, HEIGHT, drawn))


def bars(title: str, note: str, items: Sequence[Bar]) -> Plot:
    """Level bars from zero, each under its name and with the range of its repeats as a whisker."""
    most = max((item.high for item in items), default=0.0) or 1.0
    row, thick, left = 44, 18, 3
    reach = WIDTH - left - 70  # the rest is for the value

    def place(value: float) -> float:
        return left + value / most * reach

    drawn = []
    for number, item in enumerate(items):
        top = number * row + 18
        middle = top + thick / 2
        width = max(place(item.value) - left, 1)
        drawn.append(
            f'<text class="bar-name" x="{left}" y="{top - 5}">{escape(_cut(item.name))}</text>'
            f'<rect class="bar s{number % COLOURS}" x="{left}" y="{top}" width="{width:.1f}" '
            f'height="{thick}" rx="2"/>'
        )
        if item.high > item.low:
            drawn.append(
                f'<path class="whisker" d="M{place(item.low):.1f} {middle - 5:.1f}v10m0 -5'
                f'H{place(item.high):.1f}m0 -5v10"/>'
            )
        drawn.append(
            f'<text class="bar-value{" best" if item.best else ""}" x="{place(item.high) + 8:.1f}" '
            f'y="{middle + 4.5:.1f}">{escape(item.text)}</text>'
        )
    return Plot(title=title, note=note, svg=_svg(title, note, len(items) * row + 2, drawn))


def number_text(value: float) -> str:
    """Three figures are enough to see, four where they are before the point."""
    if value == 0:
        return "0"
    if abs(value) >= 10_000:
        return f"{value / 1000:.4g}k"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


class _Frame:
    """The rectangle between the axes, and where values are in it."""

    def __init__(self, x: Axis, y: Axis) -> None:
        self._x = x
        self._y = y

    def x(self, value: float) -> float:
        return LEFT + self._x.share(value) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - self._y.share(value) * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> str:
        floor = HEIGHT - BOTTOM
        drawn = []
        for tick in self._y.ticks():
            at = self.y(tick)
            drawn.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
                f'<text class="tick-y" x="{LEFT - 6}" y="{at + 4:.1f}">{number_text(tick)}</text>'
            )
        for tick in self._x.ticks():
            at = self.x(tick)
            drawn.append(
                f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{floor}"/>'
                f'<text class="tick-x" x="{at:.1f}" y="{floor + 16}">{number_text(tick)}</text>'
            )
        middle = (TOP + floor) / 2
        drawn.append(
            f'<text class="axis-name" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}">'
            f"{escape(self._x.title)}</text>"
            f'<text class="axis-name" transform="translate(13 {middle:.0f}) rotate(-90)">'
            f"{escape(self._y.title)}</text>"
        )
        return "".join(drawn)


def _svg(title: str, note: str, height: float, drawn: Sequence[str]) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {height:.0f}" aria-label="{escape(f"{title}. {note}")}">'
        f"{''.join(drawn)}</svg>"
    )


def _linear_ticks(low: float, high: float, least: float) -> list[float]:
    span = high - low or 1.0
    power = 10.0 ** math.floor(math.log10(span))
    step = max(least, next(part * power for part in (0.2, 0.5, 1.0, 2.0) if span / (part * power) <= 6))
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _steps(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 between where there is room."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    parts = (1, 2, 5) if high / low <= MOST_WITH_PARTS else (1,)
    return [part * 10.0**power for power in range(first, last + 1) for part in parts]


def _cut(text: str) -> str:
    return text if len(text) <= NAME_LETTERS else text[: NAME_LETTERS - 1] + "…"
