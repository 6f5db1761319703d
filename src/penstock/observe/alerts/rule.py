"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.observe.alerts.thresholds import Severity, Threshold
from penstock.observe.objectives import Promises
from penstock.observe.promql import span


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A figure that several alerts or dashboards read, computed once."""

    name: str
    expr: str

    def as_dict(self) -> dict[str, Any]:
        return {"record": self.name, "expr": self.expr}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    name: str
    severity: Severity
    hold: int  # seconds
    expr: str
    summary: str  # one line, with Prometheus's templates
    action: str  # what to look at first
    section: str = ""  # of docs/alerts.md; its own otherwise

    def as_dict(self) -> dict[str, Any]:
        held = {"for": span(self.hold)} if self.hold else {}
        return {
            "alert": self.name,
            "expr": self.expr,
            **held,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.action,
                "runbook": f"docs/alerts.md#{self.section or self.name.lower()}",
            },
        }


Rule = Recording | Alert
Group = Callable[[Promises], Iterator[Rule]]


def alert(threshold: Threshold, expr: str, summary: str, action: str) -> Alert:
    return Alert(
        name=threshold.name,
        severity=threshold.severity,
        hold=threshold.hold,
        expr=expr,
        summary=summary,
        action=action,
    )
