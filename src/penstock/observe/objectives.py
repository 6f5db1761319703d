"""What is promised for each model, and whether a request had it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from penstock.config.observing import ObjectivesConfig
from penstock.config.sections import GatewayConfig
from penstock.observe.record import RequestRecord

Objective = Literal["ttft", "errors", "tpot"]
# May wait as long as it must: it is promised an answer, not a quick one.
PATIENT: Final = "batch"
# Codes of refusals that a tenant's own limits made: no server could have answered, so nobody need be called.
OWN_LIMITS: Final = frozenset(
    {"rate_limit_exceeded", "tokens_limit_exceeded", "concurrency_limit_exceeded", "insufficient_quota"}
)


@dataclass(frozen=True, slots=True)
class Promise:
    """Of one model, in seconds."""

    ttft: float
    tpot: float | None = None

    def verdicts(self, record: RequestRecord) -> list[tuple[Objective, bool]]:
        """Each objective that the request counts for, and whether it was kept.

        Everybody who was let in or shed counts: a first token that never came was not in time. Only what was
        wrong itself or beyond its tenant's limits does not, and whoever left before there was anything to
        complain about was content.
        """
        outcome = record.outcome
        if outcome == "rejected" or (outcome == "shed" and record.code in OWN_LIMITS):
            return []
        kept = outcome == "ok" or outcome == "aborted"
        if record.service_class == PATIENT:
            return [("errors", kept)]
        waited = record.first_token - record.arrived if record.first_token else 0.0
        if not waited and outcome == "aborted":
            waited = record.seconds
        verdicts: list[tuple[Objective, bool]] = [("errors", kept), ("ttft", kept and waited <= self.ttft)]
        if self.tpot is not None and (tpot := record.tpot) is not None:
            verdicts.append(("tpot", tpot <= self.tpot))
        return verdicts


class Promises:
    """By model; a model without a promise of its own has everybody's."""

    def __init__(self, config: GatewayConfig) -> None:
        self.config: ObjectivesConfig = config.slo
        self.everybodys = Promise(config.slo.ttft, config.slo.tpot)
        self.models = {
            model.name: Promise(model.slo.ttft or config.slo.ttft, model.slo.tpot or config.slo.tpot)
            for model in config.models
        }

    def of(self, model: str) -> Promise:
        return self.models.get(model, self.everybodys)


def bounds(config: GatewayConfig) -> dict[str, set[float]]:
    """Every time that is promised anywhere, by objective: each must be a bound of its histogram."""
    found: dict[str, set[float | None]] = {
        "ttft": {config.slo.ttft, config.slow.ttft},
        "tpot": {config.slo.tpot},
        "e2e": {config.slow.e2e},
    }
    for model in config.models:
        for name, times in found.items():
            times.add(getattr(model.slo, name))
    return {name: {each for each in times if each is not None} for name, times in found.items()}
