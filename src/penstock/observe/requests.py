"""From the records of requests that have ended to metrics: one look-up for each, then additions."""

from __future__ import annotations

from typing import get_args

from penstock.observe.instruments import Counter
from penstock.observe.metrics import Metrics
from penstock.observe.objectives import Objective
from penstock.observe.record import Outcome, PhaseName, RequestRecord

_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
_PHASES: tuple[PhaseName, ...] = get_args(PhaseName)
_KINDS = ("prompt", "cached", "completion", "saved")


class RequestMetrics:
    """A listener of the recorder. What the server asks itself is billed, but nobody waits for it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._models: dict[tuple[str, str], _Model] = {}  # by name and service class
        self._accounts: dict[tuple[str, str], tuple[Counter, ...]] = {}  # by model and tenant

    def finished(self, record: RequestRecord) -> None:
        metrics = self._metrics
        tenant = metrics.tenants(record.tenant)
        if record.prompt_tokens or record.completion_tokens or record.dollars or record.saved_tokens:
            self._bill(record, tenant)
        if record.inside:
            return
        name = record.served_by or (record.model if record.model in metrics.models else "")
        key = (name, record.service_class)
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = _Model(metrics, *key)
        model.finished(record, metrics)
        metrics.families.tenant_requests.labels(tenant, record.outcome).inc()

    def _bill(self, record: RequestRecord, tenant: str) -> None:
        account = (record.served_by, tenant)
        counters = self._accounts.get(account)
        if counters is None:
            families = self._metrics.families
            counters = self._accounts[account] = (
                *(families.tokens.labels(*account, kind) for kind in _KINDS),
                families.cost.labels(*account),
            )
        prompt, cached, completion, saved, cost = counters
        prompt.inc(record.prompt_tokens)
        cached.inc(record.cached_tokens)
        completion.inc(record.completion_tokens)
        saved.inc(record.saved_tokens)
        cost.inc(record.dollars)


class _Model:
    """The instruments of one model and service class, looked up once."""

    def __init__(self, metrics: Metrics, name: str, service_class: str) -> None:
        families = metrics.families
        self._name = name
        self._outcomes = {
            outcome: families.requests.labels(name, service_class, outcome) for outcome in _OUTCOMES
        }
        self._ttft = families.ttft.labels(name, service_class)
        self._tpot = families.tpot.labels(name, service_class)
        self._e2e = families.e2e.labels(name, service_class)
        self._queued = families.queued.labels(name, service_class)
        self._phases = {phase: families.phases.labels(name, phase) for phase in _PHASES}
        self._engine_queue = families.phases.labels(name, "engine_queue")
        self._prompt = families.prompt_length.labels(name)
        self._answer = families.answer_length.labels(name)
        self._verdicts = {
            (objective, kept): families.judged.labels(name, objective, "good" if kept else "bad")
            for objective in _OBJECTIVES
            for kept in (True, False)
        }

    def finished(self, record: RequestRecord, metrics: Metrics) -> None:
        outcome = record.outcome
        self._outcomes[outcome].inc()
        for verdict in metrics.promises.of(self._name).verdicts(record):
            self._verdicts[verdict].inc()
        placed = False
        for phase in record.phases:
            seconds = phase.end - phase.start
            if phase.name == "queue":
                if phase.detail == "engine":
                    self._engine_queue.observe(seconds)
                    continue
                if not phase.failed:
                    self._queued.observe(phase.end - record.arrived)
            elif phase.name == "attempt":
                placed = True
            self._phases[phase.name].observe(seconds)
        ttft, tpot = record.ttft, record.tpot
        if ttft is not None:
            self._ttft.observe(ttft)
        if tpot is not None:
            self._tpot.observe(tpot)
        if outcome == "ok":
            self._e2e.observe(record.ended - record.arrived)
            self._prompt.observe(record.prompt_tokens)
            self._answer.observe(record.completion_tokens)
        elif not placed and record.code:
            metrics.families.refused.labels(self._name, metrics.codes(record.code)).inc()
        if record.causes:
            metrics.families.slow.labels(self._name, record.causes[0]).inc()
