"""States of a server as the console gets them: an empty one, and one in which everything happens at once."""

from __future__ import annotations

import math
import time
from typing import Any

from penstock.observe import snapshot as s


def idle(**fields: Any) -> s.Snapshot:
    """Just started, nothing asked, nothing configured."""
    given: dict[str, Any] = {
        "at": time.time(),
        "version": "0.0.0",
        "uptime": 4.0,
        "window": 60.0,
        "draining": False,
        "processes": 1,
        "traffic": s.Traffic(),
        "models": [],
        "tenants": [],
        "recent": [],
        "causes": {},
        "objectives": [],
        "alerts": [],
        **fields,
    }
    return s.Snapshot(**given)


def traffic(scale: float) -> s.Traffic:
    return s.Traffic(
        requests=42.5 * scale,
        failed=0.04 * scale,
        shed=0.3 * scale,
        input_tokens=18200 * scale,
        output_tokens=5120 * scale,
        ttft=s.Distribution(count=2550, p50=0.182, p95=0.47, p99=0.913),
        tpot=s.Distribution(count=2400, p50=0.0213, p95=0.031, p99=0.044),
        e2e=s.Distribution(count=2550, p50=2.31, p95=6.4, p99=11.8),
    )


def request(number: int, **fields: Any) -> s.RequestNow:
    retried = number % 5 == 3
    phases = [
        s.PhaseNow(name="admission", start=0, ms=1.2),
        s.PhaseNow(name="route", start=1.2, ms=6.4, detail="simple"),
        s.PhaseNow(name="queue", start=7.6, ms=40.0 + 130 * (number % 4)),
    ]
    at = phases[-1].start + phases[-1].ms
    if retried:
        phases.append(s.PhaseNow(name="attempt", start=at, ms=150, detail="small-1", failed=True))
        at += 150
    phases += [
        s.PhaseNow(name="attempt", start=at, ms=1200, detail="small-0"),
        s.PhaseNow(name="prefill", start=at, ms=180),
        s.PhaseNow(name="decode", start=at + 180, ms=1020),
    ]
    given: dict[str, Any] = {
        "id": f"req-{number:08x}",
        "arrived": 10_000.0 - 3 * number,
        "at": time.time() - 3 * number,
        "operation": "createChatCompletion",
        "model": "auto" if number % 2 else "small",
        "served_by": "small",
        "tier": "simple",
        "tenant": ("research", "support", "default")[number % 3],
        "service_class": ("interactive", "standard", "batch")[number % 3],
        "outcome": ("ok", "ok", "ok", "ok", "failed", "ok", "shed", "aborted")[number % 8],
        "status": 200,
        "code": "",
        "ms": at + 1200,
        "ttft_ms": at + 180,
        "prompt_tokens": 412 + number,
        "cached_tokens": 256,
        "completion_tokens": 48 + number,
        "dollars": 0.00012 * (1 + number % 7),
        "phases": phases,
        "causes": ["queued", "retried"] if retried else [],
        **fields,
    }
    return s.RequestNow(**given)


def replica(number: int, **fields: Any) -> s.ReplicaNow:
    given: dict[str, Any] = {
        "name": f"small-{number}",
        "state": "healthy",
        "requests": 11 + number,
        "capacity": 32,
        "running": 9,
        "waiting": 2,
        "kv_usage": 0.61 + 0.12 * number,
        "prefix_hits": 0.44,
        **fields,
    }
    return s.ReplicaNow(**given)


def busy(**fields: Any) -> s.Snapshot:
    """Alerts, tiers, tenants, GPUs, a replica that is down and one that was taken out."""
    now = time.time()
    given: dict[str, Any] = {
        "at": now,
        "uptime": 93784.0,
        "processes": 2,
        "traffic": traffic(1.0),
        "models": [
            s.ModelNow(
                name="small",
                traffic=traffic(0.7),
                waiting={"interactive": 2, "standard": 9, "batch": 31},
                running=58,
                kv_usage=0.73,
                prefix_hits=0.44,
                dollars_per_million=0.31,
                replicas=[
                    replica(0),
                    replica(1),
                    replica(2, state="unhealthy", reason="5 of the last 8 requests failed", requests=0),
                    replica(3, state="drained", drained=True, reason="an administrator has drained it"),
                ],
            ),
            s.ModelNow(name="large", traffic=traffic(0.3), running=12, replicas=[replica(0, name="large-0")]),
        ],
        "tenants": [
            s.TenantNow(
                name="research", requests=182034, tokens=91234567, dollars=412.5, budget=500, running=31
            ),
            s.TenantNow(name="support", requests=60211, tokens=20112233, dollars=96.2, budget=100, running=8),
            s.TenantNow(name="default", requests=912, tokens=301122, dollars=0.0213),
        ],
        "recent": [request(number) for number in range(60)],
        "causes": {"queued": 41, "long prefill": 17, "cold cache": 9, "retried": 3},
        "objectives": [
            s.ObjectiveNow(
                name="ttft",
                model="",
                bound=0.5,
                target=0.99,
                good=0.981,
                burn_5m=7.2,
                burn_1h=1.9,
                state="warn",
            ),
            s.ObjectiveNow(
                name="errors",
                model="",
                bound=None,
                target=0.99,
                good=0.9992,
                burn_5m=0.1,
                burn_1h=0.08,
                state="ok",
            ),
            s.ObjectiveNow(
                name="ttft",
                model="large",
                bound=1.0,
                target=0.99,
                good=None,
                burn_5m=None,
                burn_1h=None,
                state="unknown",
            ),
        ],
        "alerts": [
            s.AlertNow(
                name="ReplicaDown",
                severity="page",
                summary="A replica gets no requests.",
                since=now - 190,
                labels={"model": "small", "replica": "small-2"},
            ),
            s.AlertNow(
                name="QueueGrowing",
                severity="warn",
                summary="The queue has grown for 5 minutes.",
                since=now - 42,
                labels={"model": "small"},
            ),
        ],
        "routing": s.RoutingNow(
            answers=1830,
            spent=1.92,
            always_expert=9.84,
            overhead=0.031,
            savings=0.802,
            tiers=[
                s.TierNow(
                    name="simple",
                    model="small",
                    answers=1210,
                    share=0.661,
                    dollars=0.21,
                    quality=0.962,
                    checked=208,
                    escalated=38,
                ),
                s.TierNow(
                    name="medium",
                    model="large",
                    answers=430,
                    share=0.235,
                    dollars=0.64,
                    quality=0.981,
                    checked=77,
                    escalated=5,
                ),
                s.TierNow(name="expert", model="frontier", answers=190, share=0.104, dollars=1.07),
            ],
        ),
        "gpus": [
            s.GpuNow(
                index=0,
                name="NVIDIA H200",
                memory_used=121 << 30,
                memory_total=141 << 30,
                utilisation=0.87,
                temperature=61,
                power=512,
            ),
        ],
        "reports": [s.ReportNow(name="serve-1.html", title="A server under load: small", at=now - 86400)],
        "history": [
            s.Point(
                at=now - 300 + second,
                requests=40 + 12 * math.sin(second / 23) + second % 3,
                output_tokens=5000 + 900 * math.sin(second / 31) + 80 * (second % 5),
                ttft_p50=None if second < 40 else 0.18 + 0.03 * math.sin(second / 12),
                ttft_p99=None if second < 40 else 0.62 + 0.2 * math.sin(second / 17),
                waiting=int(22 + 18 * math.sin(second / 41)),
            )
            for second in range(300)
        ],
        **fields,
    }
    return idle(**given)
