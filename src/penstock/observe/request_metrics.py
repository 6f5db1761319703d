"""From the records of requests that have ended to metrics: one look-up for each, then additions."""

from __future__ import annotations

from typing import get_args

from penstock.observe.catalogue import Families
from penstock.observe.instruments import Counter
from penstock.observe.metrics import Metrics
from penstock.observe.objectives import Objective
from penstock.observe.record import Outcome, PhaseName, RequestRecord

_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
_PHASES: tuple[PhaseName, ...] = get_args(PhaseName)
_KINDS = ("prompt", "cached", "completion", "saved")


class RequestMetrics:
    """A listener of the recorder. What the server asks itself is billed, but nobody waits for it.

    In the way of every request: instruments are looked up once, and their fields added to without a call.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._models: dict[tuple[str, str], _Model] = {}  # by name and service class
        self._tenants: dict[str, _Tenant] = {}

    def finished(self, record: RequestRecord) -> None:
        metrics = self._metrics
        label = metrics.tenants(record.tenant)
        tenant = self._tenants.get(label)
        if tenant is None:
            tenant = self._tenants[label] = _Tenant(metrics.families, label)
        if record.prompt_tokens or record.completion_tokens or record.dollars or record.saved_tokens:
            tenant.bill(record)
        if record.inside:
            return
        tenant.outcomes[record.outcome].value += 1
        name = record.served_by or (record.model if record.model in metrics.models else "")
        model = self._models.get((name, record.service_class))
        if model is None:
            model = self._models[name, record.service_class] = _Model(metrics, name, record.service_class)
        model.finished(record, metrics)


class _Tenant:
    def __init__(self, families: Families, label: str) -> None:
        self._families = families
        self._label = label
        self.outcomes = {outcome: families.tenant_requests.labels(label, outcome) for outcome in _OUTCOMES}
        self._accounts: dict[str, tuple[Counter, ...]] = {}  # by model

    def bill(self, record: RequestRecord) -> None:
        counters = self._accounts.get(record.served_by)
        if counters is None:
            families, account = self._families, (record.served_by, self._label)
            counters = self._accounts[record.served_by] = (
                *(families.tokens.labels(*account, kind) for kind in _KINDS),
                families.cost.labels(*account),
            )
        prompt, cached, completion, saved, cost = counters
        prompt.value += record.prompt_tokens
        cached.value += record.cached_tokens
        completion.value += record.completion_tokens
        saved.value += record.saved_tokens
        cost.value += record.dollars


class _Model:
    """The instruments of one model and service class."""

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
        # Whoever named no model that is served, or was not heard out, was promised nothing.
        self._verdicts = {
            (objective, kept): families.judged.labels(name, objective, "good" if kept else "bad")
            for objective in (_OBJECTIVES if name else ())
            for kept in (True, False)
        }

    def finished(self, record: RequestRecord, metrics: Metrics) -> None:
        outcome, arrived = record.outcome, record.arrived
        self._outcomes[outcome].value += 1
        if self._verdicts:
            for verdict in metrics.promises.of(self._name).verdicts(record):
                self._verdicts[verdict].value += 1
        queued = placed = False
        phases = self._phases
        for phase in record.phases:
            name = phase.name
            if name == "queue":
                if phase.detail == "engine":
                    self._engine_queue.value += phase.end - phase.start
                    continue
                # Once: what came after a failed attempt waited for that, too.
                if not phase.failed and not queued:
                    queued = True
                    self._queued.observe(phase.end - arrived)
            elif name == "attempt":
                placed = True
            phases[name].value += phase.end - phase.start
        if record.first_token:
            self._ttft.observe(record.first_token - arrived)
            tpot = record.tpot
            if tpot is not None:
                self._tpot.observe(tpot)
        if outcome == "ok":
            self._e2e.observe(record.ended - arrived)
            self._prompt.observe(record.prompt_tokens)
            self._answer.observe(record.completion_tokens)
        elif not placed and record.code:
            metrics.families.refused.labels(self._name, metrics.codes(record.code)).inc()
        if record.causes:
            metrics.families.slow.labels(self._name, record.causes[0]).inc()
