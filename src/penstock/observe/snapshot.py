"""What the console and `penstock top` show: the state now. Times in seconds, `at` since the epoch."""

from __future__ import annotations

from typing import Literal

import msgspec

Standing = Literal["starting", "healthy", "unhealthy", "dead", "leaving", "drained"]


class Distribution(msgspec.Struct, kw_only=True):
    """Of the window; None: nothing was measured."""

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Traffic(msgspec.Struct, kw_only=True):
    """Of the window, per second but for the distributions."""

    requests: float = 0.0
    failed: float = 0.0
    shed: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    ttft: Distribution = msgspec.field(default_factory=Distribution)
    tpot: Distribution = msgspec.field(default_factory=Distribution)
    e2e: Distribution = msgspec.field(default_factory=Distribution)


class ReplicaNow(msgspec.Struct, kw_only=True):
    """`/admin/backends` gives the same, of the process that is asked."""

    name: str
    state: Standing
    reason: str | None = None  # why it gets no requests
    requests: int = 0  # that it has from this server
    tokens: int = 0  # that these may take
    capacity: int = 0
    running: int | None = None  # as it says itself
    waiting: int | None = None
    kv_usage: float | None = None  # 0 to 1
    prefix_hits: float | None = None  # share of prompt tokens, of the window
    drained: bool = False  # an administrator has taken it out


class ModelNow(msgspec.Struct, kw_only=True):
    name: str
    traffic: Traffic
    waiting: dict[str, int] = msgspec.field(default_factory=dict)  # by service class
    running: int = 0
    kv_usage: float | None = None
    prefix_hits: float | None = None
    dollars_per_million: float | None = None  # of the window's tokens
    replicas: list[ReplicaNow] = msgspec.field(default_factory=list)


class TierNow(msgspec.Struct, kw_only=True):
    name: str
    model: str
    answers: int = 0
    share: float | None = None  # of answers to auto
    dollars: float = 0.0
    quality: float | None = None  # share of checked answers that were as good as the expert's
    checked: int = 0
    escalated: int = 0


class RoutingNow(msgspec.Struct, kw_only=True):
    """Since the start of the server."""

    answers: int = 0
    spent: float = 0.0  # dollars
    always_expert: float = 0.0
    overhead: float = 0.0  # what routing itself took
    savings: float | None = None  # net share of what the expert would have cost
    tiers: list[TierNow] = msgspec.field(default_factory=list)


class TenantNow(msgspec.Struct, kw_only=True):
    name: str
    requests: int = 0  # of the current month, as the ledger has it
    tokens: int = 0
    dollars: float = 0.0
    budget: float | None = None  # a month
    running: int = 0


class PhaseNow(msgspec.Struct, kw_only=True):
    name: str
    start: float  # milliseconds after arrival
    ms: float
    detail: str = ""
    failed: bool = False


class RequestNow(msgspec.Struct, kw_only=True):
    """One that has ended."""

    id: str  # the client's, who may give the same to several
    arrived: float  # by the server's own clock: with the id it tells them apart
    at: float
    operation: str
    model: str
    served_by: str
    tier: str
    tenant: str
    service_class: str
    outcome: str
    status: int
    code: str
    ms: float
    ttft_ms: float | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    dollars: float
    phases: list[PhaseNow]
    causes: list[str]


class ObjectiveNow(msgspec.Struct, kw_only=True):
    name: str  # ttft, errors, tpot, e2e
    model: str  # empty: all
    bound: float | None  # seconds; None for errors
    target: float  # share of requests that must be good
    good: float | None  # share that was, of the last hour
    burn_5m: float | None  # how many times faster than allowed the budget is used up
    burn_1h: float | None
    state: str  # ok, warn, page, unknown


class AlertNow(msgspec.Struct, kw_only=True):
    name: str
    severity: str  # page, warn, info
    summary: str
    since: float
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class GpuNow(msgspec.Struct, kw_only=True):
    index: int
    name: str
    memory_used: int  # bytes
    memory_total: int
    utilisation: float | None = None  # 0 to 1
    temperature: float | None = None  # degrees Celsius
    power: float | None = None  # watts


class Point(msgspec.Struct, kw_only=True):
    """A second of the past, for the small charts."""

    at: float
    requests: float
    output_tokens: float
    ttft_p50: float | None
    ttft_p99: float | None
    waiting: int


class ReportNow(msgspec.Struct, kw_only=True):
    name: str
    title: str
    at: float


class Snapshot(msgspec.Struct, kw_only=True):
    at: float
    version: str
    uptime: float
    window: float  # seconds that rates and distributions are of
    draining: bool
    processes: int
    traffic: Traffic
    models: list[ModelNow]
    tenants: list[TenantNow]
    recent: list[RequestNow]  # the newest first
    causes: dict[str, int]  # of slow requests in the window, by cause
    objectives: list[ObjectiveNow]
    alerts: list[AlertNow]
    routing: RoutingNow | None = None
    gpus: list[GpuNow] = msgspec.field(default_factory=list)
    reports: list[ReportNow] = msgspec.field(default_factory=list)
    history: list[Point] = msgspec.field(default_factory=list)
