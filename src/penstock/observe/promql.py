"""Parts of PromQL expressions that alerts and dashboards share."""

from __future__ import annotations

import json
from typing import Final

_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def span(seconds: int) -> str:
    """A duration as Prometheus writes it, in the largest unit that divides it."""
    return next(f"{seconds // size}{unit}" for size, unit in _UNITS if seconds % size == 0)


def text(value: str) -> str:
    """A string between quotes; PromQL escapes as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def _summed(function: str, metric: str, window: str, by: str, where: str, shift: str) -> str:
    selector = f"{metric}{{{where}}}" if where else metric
    over = f"[{window}] offset {shift}" if shift else f"[{window}]"
    return f"{summed_by(by)} ({function}({selector}{over}))"


def summed_by(labels: str) -> str:
    return f"sum by ({labels})" if labels else "sum"


def rate(counter: str, window: str, by: str = "", where: str = "", shift: str = "") -> str:
    """A second; `shift` ago."""
    return _summed("rate", counter, window, by, where, shift)


def increase(counter: str, window: str, by: str = "", where: str = "") -> str:
    return _summed("increase", counter, window, by, where, "")


def quantile(q: float, histogram: str, window: str, by: str = "", where: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({q:g}, {rate(f'{histogram}_bucket', window, labels, where)})"


def mean(histogram: str, window: str, by: str = "", where: str = "", shift: str = "") -> str:
    """Of what was observed: a histogram's sum and count are exact, its quantiles are not."""
    parts = (rate(f"{histogram}_{part}", window, by, where, shift) for part in ("sum", "count"))
    return " / ".join(parts)
