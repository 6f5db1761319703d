"""What is promised for each model, and whether a request had it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from penstock.config.observing import ObjectivesConfig
from penstock.config.sections import GatewayConfig
from penstock.observe.alerts import thresholds
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
    """Every time that is promised or alerted for, by objective: each must be a bound of its histogram."""
    slos = [model.slo for model in config.models]
    ttft = _given(config.slo.ttft, *(slo.ttft for slo in slos))
    alerted = {alert.bound * each for alert in (thresholds.TTFT_WARN, thresholds.TTFT_PAGE) for each in ttft}
    return {
        "ttft": ttft | alerted | _given(config.slow.ttft),
        "tpot": _given(config.slo.tpot, *(slo.tpot for slo in slos)),
        "e2e": _given(config.slow.e2e, *(slo.e2e for slo in slos)),
    }


def _given(*times: float | None) -> set[float]:
    return {each for each in times if each is not None}
