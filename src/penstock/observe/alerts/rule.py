"""What a rule is, and what it is made from: the promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.config import ObjectivesConfig, SloConfig
from penstock.observe.alerts.thresholds import Severity, Threshold
from penstock.observe.promql import span, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The objectives of all models, and those that models have of their own."""

    slo: ObjectivesConfig = field(default_factory=ObjectivesConfig)
    own: Mapping[str, SloConfig] = field(default_factory=dict)

    def ttft(self) -> Iterator[tuple[float, str]]:
        """Each promised time to the first token, and the label matchers of the models it is for."""
        own = {name: slo.ttft for name, slo in self.own.items() if slo.ttft is not None}
        yield self.slo.ttft, ",".join(f"model_name!={text(name)}" for name in own)
        for name, bound in own.items():
            yield bound, f"model_name={text(name)}"

    @property
    def has_tpot(self) -> bool:
        return self.slo.tpot is not None or any(slo.tpot is not None for slo in self.own.values())


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
