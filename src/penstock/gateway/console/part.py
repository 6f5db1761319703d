"""What one front process knows of its own: the part of the console's state that it tells the others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

import msgspec

from penstock.aio.books import RouteTally
from penstock.gateway.console.samples import Samples
from penstock.gateway.deployment import Deployment
from penstock.gateway.local.backend import EngineBackend
from penstock.gateway.replicas import replica_now
from penstock.gateway.state import Gateway
from penstock.observe.engines import gpu_of
from penstock.observe.gpu import GpuWatch
from penstock.observe.record import RequestRecord
from penstock.observe.snapshot import AlertNow, GpuNow, PhaseNow, ReplicaNow, RequestNow
from penstock.observe.window import WINDOWS, ByModel, Second, Window


class ModelPart(msgspec.Struct, kw_only=True):
    name: str
    waiting: dict[str, int]  # by service class
    growth: float  # requests a second by which the queue has grown over the last minutes
    replicas: list[ReplicaNow]
    healthy: int = 0  # of these, as this process sees them
    oom: int = 0  # steps of its engines that lacked memory in the last minutes, and engines that died of it
    # Of what its engines have loaded, each once.
    versions: list[tuple[str, ...]] = msgspec.field(default_factory=list)


class Part(msgspec.Struct, kw_only=True):
    """Times are of the machine's monotonic clock, which its processes share."""

    started: float
    draining: bool
    sums: dict[int, ByModel]  # by seconds of the window
    history: dict[int, Second]
    models: list[ModelPart]
    tenants: dict[str, int]  # requests that each has running
    recent: list[RequestNow]  # `at` is monotonic here
    routing: dict[str, RouteTally] | None  # by tier, since the process began; None: nothing is routed
    alerts: list[AlertNow] = msgspec.field(default_factory=list)  # `since` is monotonic here
    gpus: list[GpuNow] = msgspec.field(default_factory=list)
    # Of each GPU's memory: reserved by engines, and held by no request.
    idle_kv_bytes: dict[int, int] = msgspec.field(default_factory=dict)


def part(
    gateway: Gateway, window: Window, samples: Samples, recent: list[RequestNow], started: float
) -> Part:
    now, gpus = time.monotonic(), gateway.metrics.gpus
    routing: Mapping[str, RouteTally] | None = None
    if gateway.orchestrator is not None and gateway.orchestrator.tiers:
        known = gateway.orchestrator.since_start
        routing = {tier.name: known.get(tier.name, RouteTally()) for tier in gateway.orchestrator.tiers}
    return Part(
        started=started,
        draining=gateway.draining,
        sums={seconds: window.sums(seconds) for seconds in WINDOWS},
        history=window.history(),
        models=[_model(deployment, samples, now) for deployment in gateway.deployments.values()],
        tenants=Counter(
            exchange.caller.tenant for exchange in gateway.running() if not exchange.caller.inside
        ),
        recent=recent,
        routing=None if routing is None else dict(routing),
        gpus=[reading.now() for reading in gpus.readings] if gpus is not None else [],
        idle_kv_bytes=_idle_kv_bytes(gateway, gpus),
    )


def _idle_kv_bytes(gateway: Gateway, gpus: GpuWatch | None) -> dict[int, int]:
    found: Counter[int] = Counter()
    for deployment in gateway.deployments.values():
        for backend in deployment.backends():
            if isinstance(backend, EngineBackend) and (gpu := gpu_of(backend.info, gpus)) is not None:
                found[gpu] += backend.idle_kv_bytes
    return found


def _model(deployment: Deployment, samples: Samples, now: float) -> ModelPart:
    members = list(deployment.dispatcher.members.values())
    return ModelPart(
        name=deployment.name,
        waiting={str(name): count for name, count in deployment.dispatcher.queue.counts.items()},
        growth=samples.growth(deployment.name),
        replicas=[
            replica_now(member, now, samples.prefix_hits(deployment.name, member)) for member in members
        ],
        healthy=deployment.dispatcher.healthy_count,
        oom=sum(samples.oom(deployment.name, member) for member in members),
        versions=sorted(
            {each.backend.version for each in members if isinstance(each.backend, EngineBackend)}
        ),
    )


def request_now(record: RequestRecord) -> RequestNow:
    ttft = record.ttft
    return RequestNow(
        id=record.id,
        arrived=record.arrived,
        at=record.arrived,
        operation=record.operation,
        model=record.model,
        served_by=record.served_by,
        tier=record.tier,
        tenant=record.tenant,
        service_class=record.service_class,
        outcome=record.outcome,
        status=record.status,
        code=record.code,
        ms=_ms(record.seconds),
        ttft_ms=None if ttft is None else _ms(ttft),
        prompt_tokens=record.prompt_tokens,
        cached_tokens=record.cached_tokens,
        completion_tokens=record.completion_tokens,
        dollars=record.dollars,
        phases=[
            PhaseNow(
                name=phase.name,
                start=_ms(phase.start - record.arrived),
                ms=_ms(phase.end - phase.start),
                detail=phase.detail,
                failed=phase.failed,
            )
            for phase in record.phases
        ],
        causes=list(record.causes),
    )


def _ms(seconds: float) -> float:
    return round(max(seconds, 0.0) * 1000, 3)
