"""A reliability diagram as SVG: what was predicted, and what came true, tier by tier."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from penstock.aio.evaluate.metrics import Calibration

_SIDE = 240  # pixels of a panel's square
_MARGIN = 46
_TITLE = 40


def reliability_svg(title: str, tiers: Mapping[str, Calibration]) -> str:
    """One panel for each tier; a dot's area is its share of queries, the diagonal is perfect."""
    width = len(tiers) * (_SIDE + _MARGIN) + _MARGIN
    height = _SIDE + 2 * _MARGIN + _TITLE
    panels = "".join(
        _panel(model, found, _MARGIN + at * (_SIDE + _MARGIN))
        for at, (model, found) in enumerate(tiers.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>'
        f'<text x="{width / 2:.0f}" y="24" text-anchor="middle" font-size="15">{escape(title)}</text>'
        f"{panels}</svg>\n"
    )


def _panel(model: str, found: Calibration, left: int) -> str:
    top = _TITLE + 14
    rows = sum(part.rows for part in found.bins)
    points = [
        (left + part.predicted * _SIDE, top + (1 - part.observed) * _SIDE, (part.rows / rows) ** 0.5)
        for part in found.bins
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2 + 14 * share:.1f}" fill="#1f6feb" fill-opacity="0.45"/>'
        for x, y, share in points
    )
    ticks = "".join(
        f'<text x="{left + at * _SIDE:.0f}" y="{top + _SIDE + 15}" text-anchor="middle">{at:g}</text>'
        f'<text x="{left - 5}" y="{top + (1 - at) * _SIDE + 4:.0f}" text-anchor="end">{at:g}</text>'
        for at in (0, 0.5, 1)
    )
    middle = left + _SIDE / 2
    return (
        f'<rect x="{left}" y="{top}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#999"/>'
        f'<line x1="{left}" y1="{top + _SIDE}" x2="{left + _SIDE}" y2="{top}" stroke="#bbb" '
        'stroke-dasharray="4 4"/>'
        f'<polyline points="{line}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>{dots}{ticks}'
        f'<text x="{middle:.0f}" y="{top - 6}" text-anchor="middle">{escape(model)}: '
        f"ECE {found.ece:.3f}, Brier {found.brier:.3f}</text>"
        f'<text x="{middle:.0f}" y="{top + _SIDE + 32}" text-anchor="middle">predicted</text>'
        f'<text transform="translate({left - 26} {top + _SIDE / 2:.0f}) rotate(-90)" '
        'text-anchor="middle">observed</text>'
    )
