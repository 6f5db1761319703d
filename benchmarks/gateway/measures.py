"""What is measured, phase by phase. Each phase takes the gateways in turn, and one repeat follows another,
so that whatever else the machine does hits all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .figures import FIGURES, Results, slope
from .gateways import MODEL, Gateway
from .mock import COMPLETION_TOKENS
from .processes import Load, Mock

SETTLE_SECONDS = 0.5  # what a gateway puts off (ledger, logs) is its work as well
WARM_REQUESTS = 400
SLOPE_REQUESTS = 5_000  # with fewer, the caches that still fill would pass for growth
MEGABYTE = 1e6
DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Sizes:
    repeats: int = 3
    connections: int = 32
    seconds: float = 5.0  # of an unstreamed closed loop
    rounds: int = 50  # of `block` requests to each, one client
    block: int = 10
    rate_seconds: float = 15.0
    streams: int = 32
    chunks: int = 500
    stream_seconds: float = 4.0
    paced_chunks: int = 500
    step_seconds: float = 0.01  # 100 tokens a second for each stream
    requests: int = 100_000
    peer_requests: int = 10_000
    idle_seconds: float = 5.0


QUICK = Sizes(
    repeats=1, seconds=2.0, rounds=20, rate_seconds=4.0, stream_seconds=1.5, paced_chunks=200,
    requests=6_000, peer_requests=600, idle_seconds=2.0,
)  # fmt: skip


@dataclass(slots=True)
class Bench:
    mock: Mock
    load: Load
    gateways: list[Gateway]
    sizes: Sizes
    say: Callable[[str], None]
    results: dict[str, Results] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.results.update({name: Results() for name in (DIRECT, *(each.name for each in self.gateways))})

    @property
    def direct(self) -> dict[str, Any]:
        return {"host": self.mock.host, "port": self.mock.ports[0], "model": MODEL}

    def targets(self) -> list[tuple[str, dict[str, Any], Gateway | None]]:
        return [(DIRECT, self.direct, None), *((each.name, each.address, each) for each in self.gateways)]

    def run(self, name: str, phase: str, job: dict[str, Any]) -> dict[str, Any]:
        answer = self.load.run(job)
        for part in answer.get("targets", [answer]):
            if part["errors"]:
                asked = part["errors"] + part["answers"]
                problem = f"{phase}: {part['errors']} of {asked} failed: {part['first_error']}"
                self.results[name].problems.append(problem)
                self.say(f"    [yellow]{problem}[/yellow]")
        self.results[name].raw.append({"phase": phase, **answer})
        delivered = self.results[name].delivered
        answers = answer.get("targets", [answer])[-1][
            "answers"
        ]  # where targets alternate, the gateway is last
        delivered.requests += answers
        delivered.tokens += answers * (job["chunks"] if job.get("stream") else COMPLETION_TOKENS)
        return answer

    def weighed(
        self, name: str, phase: str, job: dict[str, Any], gateway: Gateway | None
    ) -> tuple[dict[str, Any], float]:
        """The same, and the CPU-seconds that the gateway's processes spent on it (0 without one)."""
        before = gateway.process.cpu_seconds() if gateway else 0.0
        answer = self.run(name, phase, job)
        time.sleep(SETTLE_SECONDS)
        return answer, (gateway.process.cpu_seconds() - before) if gateway else 0.0

    def record(self, name: str, **values: float) -> None:
        for figure, value in values.items():
            self.results[name].add(figure, value)
        shown = ", ".join(
            f"{FIGURES[key].title} {FIGURES[key].shown(value)}" for key, value in values.items()
        )
        self.say(f"    {name}: {shown}")


def warm(bench: Bench) -> None:
    for name, address, _ in bench.targets():
        job = {"kind": "closed", "target": address, "connections": 8, "requests": WARM_REQUESTS}
        bench.run(name, "warm-up", job)
        bench.run(name, "warm-up", {**job, "requests": 16, "stream": True, "chunks": 50})


def unstreamed(bench: Bench) -> None:
    sizes = bench.sizes
    for name, address, gateway in bench.targets():
        job = {
            "kind": "closed",
            "target": address,
            "connections": sizes.connections,
            "seconds": sizes.seconds,
        }
        answer, cpu = bench.weighed(name, "unstreamed", job, gateway)
        if answer["answers"]:
            per_cpu = {"requests_per_cpu": answer["answers"] / cpu} if cpu else {}
            bench.record(name, requests_per_second=answer["answers"] / answer["wall"], **per_cpu)


def one_client(bench: Bench) -> None:
    for gateway in bench.gateways:
        job = {
            "kind": "alternate",
            "targets": [bench.direct, gateway.address],
            "rounds": bench.sizes.rounds,
            "block": bench.sizes.block,
        }
        straight, through = (part["latency"] for part in bench.run(gateway.name, "latency", job)["targets"])
        if straight and through:
            bench.record(
                gateway.name,
                added_one=(through["p50"] - straight["p50"]) * 1000,
                added_one_p99=(through["p99"] - straight["p99"]) * 1000,
            )


def fixed_rate(bench: Bench) -> None:
    for rate in (50, 200):
        straight: dict[str, float] | None = None
        for name, address, _ in bench.targets():
            job = {
                "kind": "open", "target": address, "rate": rate,
                "seconds": bench.sizes.rate_seconds, "seed": len(bench.results[name].raw),
            }  # fmt: skip
            latency = bench.run(name, f"{rate} req/s", job)["latency"]
            if name == DIRECT:
                straight = latency
            elif straight and latency:
                added = {p: (latency[p] - straight[p]) * 1000 for p in ("p50", "p99")}
                bench.record(name, **{f"added_{rate}_{p}": value for p, value in added.items()})


def unpaced_streams(bench: Bench) -> None:
    sizes = bench.sizes
    bench.mock.step(0.0)
    for name, address, gateway in bench.targets():
        job = {
            "kind": "closed", "target": address, "stream": True, "chunks": sizes.chunks,
            "connections": sizes.streams, "seconds": sizes.stream_seconds,
        }  # fmt: skip
        answer, cpu = bench.weighed(name, "streams", job, gateway)
        if cpu and answer["chunks"]:
            bench.record(name, chunks_per_cpu=answer["chunks"] / cpu)
        elif not gateway:
            bench.say(f"    {name}: {answer['chunks'] / answer['wall']:,.0f} chunks a second")


def paced_streams(bench: Bench) -> None:
    sizes = bench.sizes
    bench.mock.step(sizes.step_seconds)
    straight = None
    for name, address, gateway in bench.targets():
        job = {
            "kind": "closed", "target": address, "stream": True, "chunks": sizes.paced_chunks,
            "connections": sizes.streams, "requests": sizes.streams,
        }  # fmt: skip
        answer, cpu = bench.weighed(name, "paced streams", job, gateway)
        if name == DIRECT:
            straight = answer["ttft"]
        if not (cpu and answer["gap"] and straight):
            continue
        bench.record(
            name,
            paced_chunks_per_cpu=answer["chunks"] / cpu,
            added_ttft=(answer["ttft"]["p50"] - straight["p50"]) * 1000,
            gap_p99=answer["gap"]["p99"] * 1000,
        )
    bench.mock.step(0.0)


def memory(bench: Bench) -> None:
    """Nine requests in ten are unstreamed, the others streams; no two prompts are the same."""
    for gateway in bench.gateways:
        total = bench.sizes.requests if gateway.name == "penstock" else bench.sizes.peer_requests
        points: list[tuple[float, float]] = []
        part = max(total // 50, 10)
        for done in range(0, total, part):
            job = {"kind": "closed", "target": gateway.address, "connections": bench.sizes.connections}
            bench.run(gateway.name, "memory", {**job, "requests": part - part // 10})
            bench.run(gateway.name, "memory", {**job, "requests": part // 10, "stream": True, "chunks": 16})
            points.append((done + part, gateway.process.memory() / MEGABYTE))
        settled = [point for point in points if point[0] > total / 5]  # before that caches fill
        bench.results[gateway.name].raw.append({"phase": "memory", "points": points})
        bench.record(gateway.name, memory=points[-1][1])
        if total >= SLOPE_REQUESTS:
            bench.record(gateway.name, memory_slope=slope(settled) * 10_000)


def idle(bench: Bench) -> None:
    before = [gateway.process.cpu_seconds() for gateway in bench.gateways]
    time.sleep(bench.sizes.idle_seconds)
    for gateway, spent in zip(bench.gateways, before, strict=True):
        share = (gateway.process.cpu_seconds() - spent) / bench.sizes.idle_seconds
        bench.record(gateway.name, idle_cpu=share * 100)


# In the order in which they run; those of REPEATED once in every repeat, the others once.
REPEATED: dict[str, Callable[[Bench], None]] = {
    "unstreamed": unstreamed,
    "latency": one_client,
    "rate": fixed_rate,
    "streams": unpaced_streams,
    "paced": paced_streams,
}
ONCE: dict[str, Callable[[Bench], None]] = {"idle": idle, "memory": memory}
PHASES = (*REPEATED, *ONCE)
