"""What is promised for each model, and whether a request had it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from penstock.config.observing import ObjectivesConfig
from penstock.config.sections import GatewayConfig, SloConfig
from penstock.observe.alerts import thresholds
from penstock.observe.promql import text
from penstock.observe.record import RequestRecord

Objective = Literal["ttft", "errors", "tpot", "e2e"]
# May wait longer for its first token than the others, and as long as it must for the rest.
PATIENT: Final = "batch"
# Codes of refusals that nobody need be called for: a tenant's own limits made them, so no server could have
# answered; or this server is on its way out, and another one can.
NOBODYS_FAULT: Final = frozenset(
    {
        "rate_limit_exceeded",
        "tokens_limit_exceeded",
        "concurrency_limit_exceeded",
        "insufficient_quota",
        "draining",
    }
)


@dataclass(frozen=True, slots=True)
class Promise:
    """Of one model, in seconds; None: nothing is promised."""

    ttft: float
    tpot: float | None = None
    e2e: float | None = None
    batch_ttft: float = 2.0

    def bounds(self) -> Iterator[tuple[Objective, float | None]]:
        """Each objective there is, with its bound; None: it is not about time."""
        yield "ttft", self.ttft
        yield "errors", None
        if self.tpot is not None:
            yield "tpot", self.tpot
        if self.e2e is not None:
            yield "e2e", self.e2e

    def verdicts(self, record: RequestRecord) -> list[tuple[Objective, bool]]:
        """Each objective that the request counts for, and whether it was kept.

        Everybody who was let in or shed counts: a first token that never came was not in time. What was wrong
        itself does not, nor what nobody is to blame for; whoever left before there was anything to complain
        about was content. A first token that only another server knows of is neither in time nor late.
        """
        outcome = record.outcome
        if outcome == "rejected" or (outcome == "shed" and record.code in NOBODYS_FAULT):
            return []
        kept = outcome == "ok" or outcome == "aborted"
        verdicts: list[tuple[Objective, bool]] = [("errors", kept)]
        patient = record.service_class == PATIENT
        waited = record.first_token - record.arrived if record.first_token else None
        if waited is None and outcome != "ok":
            waited = record.seconds
        if waited is not None:
            verdicts.append(("ttft", kept and waited <= (self.batch_ttft if patient else self.ttft)))
        if patient:
            return verdicts
        if self.tpot is not None and (tpot := record.tpot) is not None:
            verdicts.append(("tpot", tpot <= self.tpot))
        if self.e2e is not None:
            verdicts.append(("e2e", kept and record.seconds <= self.e2e))
        return verdicts


class Promises:
    """By model; a model without a promise of its own has everybody's."""

    def __init__(self, config: GatewayConfig) -> None:
        self.config: ObjectivesConfig = config.slo
        self.everybodys = _promise(config.slo, SloConfig())
        self.models = {model.name: _promise(config.slo, model.slo) for model in config.models}

    def of(self, model: str) -> Promise:
        return self.models.get(model, self.everybodys)

    def target(self, objective: str) -> float:
        """Share of the requests that must be good."""
        return self.config.errors_target if objective == "errors" else self.config.ttft_target

    def objectives(self) -> list[Objective]:
        """Those that somebody is promised."""
        promises = (self.everybodys, *self.models.values())
        return list(dict.fromkeys(name for promise in promises for name, _ in promise.bounds()))

    def ttft(self) -> Iterator[tuple[float, str]]:
        """Each promised time to the first token, and the label matchers of the models it is for."""
        everybodys = self.everybodys.ttft
        own = {name: each.ttft for name, each in self.models.items() if each.ttft != everybodys}
        yield everybodys, ",".join(f"model_name!={text(name)}" for name in own)
        for name, bound in own.items():
            yield bound, f"model_name={text(name)}"


def _promise(slo: ObjectivesConfig, own: SloConfig) -> Promise:
    ttft = own.ttft or slo.ttft
    return Promise(ttft, own.tpot or slo.tpot, own.e2e, max(ttft, slo.batch_ttft))


def bounds(config: GatewayConfig) -> dict[str, set[float]]:
    """Every time that is promised or alerted for, by objective: each must be a bound of its histogram."""
    promises = Promises(config)
    every = (promises.everybodys, *promises.models.values())
    ttft = {each.ttft for each in every}
    alerted = {alert.bound * each for alert in (thresholds.TTFT_WARN, thresholds.TTFT_PAGE) for each in ttft}
    return {
        "ttft": ttft | alerted | {each.batch_ttft for each in every} | _given(config.slow.ttft),
        "tpot": _given(*(each.tpot for each in every)),
        "e2e": _given(config.slow.e2e, *(each.e2e for each in every)),
    }


def _given(*times: float | None) -> set[float]:
    return {each for each in times if each is not None}
