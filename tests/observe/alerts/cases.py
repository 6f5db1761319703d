"""For each alert, time series that make it fire and others, often close by, that must not.

Values are in promtool's notation: `0+10x60` is 0 and sixty more samples, each 10 above the last; a sample a
minute unless a case says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Series = dict[str, str]

MODEL = {"model_name": "m"}
ENGINE = {"model_name": "m", "engine": "0"}
DAY = 1440  # minutes


@dataclass(frozen=True)
class Case:
    alert: str
    at: int  # minutes after the start
    fires: Series
    silent: Series
    labels: Mapping[str, str] = field(default_factory=lambda: MODEL)
    step: int = 1  # minutes between samples


def by_model(metric: str, **values: str) -> Series:
    """The same metric of several models."""
    return {metric.replace("MODEL", model): value for model, value in values.items()}


def requests(model: str, **outcomes: str) -> Series:
    return {
        f'penstock_requests_total{{model_name="{model}",class="standard",outcome="{outcome}"}}': value
        for outcome, value in outcomes.items()
    }


def histogram(name: str, labels: str, values: Mapping[str, float], minutes: int) -> Series:
    """Buckets that grow by so much a minute; the largest is all of them."""
    buckets = {f'{name}_bucket{{{labels},le="{le}"}}': f"0+{n:g}x{minutes}" for le, n in values.items()}
    return {**buckets, f"{name}_count{{{labels}}}": f"0+{max(values.values()):g}x{minutes}"}


def ttft(labels: str, le: str, share: float, a_minute: float = 200) -> Series:
    """So large a share of the requests gets its first token within `le` seconds, the rest a bit later."""
    later = f"{float(le) * 1.25:g}"
    values = {"0.1": a_minute / 2, le: share * a_minute, later: a_minute, "+Inf": a_minute}
    return histogram("penstock_time_to_first_token_seconds", labels, values, 30)


def ttft_case(alert: str, le: str) -> Case:
    return Case(
        alert,
        15,
        ttft('model_name="m",class="standard"', le, 0.985),
        {
            **ttft('model_name="m",class="interactive"', le, 0.995),
            **ttft('model_name="m",class="batch"', le, 0.5),  # waits by design
            **ttft('model_name="seldom",class="standard"', le, 0.5, a_minute=2),
        },
    )


def judged(objective: str, bad: str, good: str, model: str = "m") -> Series:
    labels = f'model_name="{model}",objective="{objective}"'
    return {
        f'penstock_slo_requests_total{{{labels},verdict="bad"}}': bad,
        f'penstock_slo_requests_total{{{labels},verdict="good"}}': good,
    }


def burns(objective: str) -> list[Case]:
    """With a target of 99%, so that a burn rate of 1 is a bad request in a hundred."""
    name, labels = f"Penstock{objective.capitalize()}Burn", {"model_name": "m", "objective": objective}
    other = "errors" if objective == "ttft" else "ttft"
    return [
        Case(
            f"{name}1h",
            70,
            judged(objective, "0+15x70", "0+85x70"),
            {
                **judged(objective, "0+14x70", "0+86x70"),
                **judged(objective, "0+50x60 3000x10", "0+50x60 3000+100x10", "over-again"),
                **judged(objective, "0x65 0+50x5", "0+100x65 6500+50x5", "just-begun"),
                **judged(objective, "0x60 1x5 2x3 3x10", "0x70", "seldom"),
                **judged(other, "0+90x70", "0+10x70", "another-objective"),
            },
            labels,
        ),
        Case(
            f"{name}6h",
            370,
            judged(objective, "0+35x37", "0+465x37"),
            {
                **judged(objective, "0+25x37", "0+475x37"),
                **judged(objective, "0+100x31 3100x6", "0+400x31 12400+500x6", "over-again"),
            },
            labels,
            step=10,
        ),
        Case(
            f"{name}3d",
            3 * DAY + 60,
            judged(objective, "0+18x146", "0+1482x146"),
            {
                **judged(objective, "0+12x146", "0+1488x146"),
                **judged(objective, "0+30x130 3900x16", "0+1470x130 191100+1500x16", "over-again"),
            },
            labels,
            step=30,
        ),
    ]


def tail(q99: str, model: str = "m", a_minute: float = 200) -> Series:
    """Half of the requests within a second, 99.5 of a hundred within `q99`."""
    shares = {"0.5": 0, "1": 0.5, q99: 0.995, "60": 1, "+Inf": 1}
    values = {le: share * a_minute for le, share in shares.items()}
    return histogram(
        "penstock_e2e_request_latency_seconds", f'model_name="{model}",class="standard"', values, 60
    )


def tpot(model: str, before: float, after: float, count: float = 50) -> Series:
    """Mean seconds of a token over a day, then for an hour, every five minutes."""
    labels = f'model_name="{model}",class="standard"'
    name, first, then = "penstock_time_per_output_token_seconds", before * count, after * count
    return {
        f"{name}_count{{{labels}}}": f"0+{count:g}x300",
        f"{name}_sum{{{labels}}}": f"0+{first:g}x288 {first * 288 + then:g}+{then:g}x11",
    }


def restarts(value: str) -> Series:
    return {'penstock_engine_restarts_total{model_name="m",engine="0"}': value}


def memory(gpu: str, used: float, kv: float = 0, kv_usage: float = 0) -> Series:
    """GB of a GPU with 100: in use, and of that the KV cache with the share that requests hold. Each has an
    engine of its own, and the machine another one on its CPU."""
    where = 'instance="host:8000"'
    found = {
        f'penstock_gpu_memory_used_bytes{{{where},gpu="{gpu}",name="H200"}}': f"{used * 1e9:g}x30",
        f'penstock_gpu_memory_total_bytes{{{where},gpu="{gpu}",name="H200"}}': "1e11x30",
    }
    if kv:
        engine = f'{where},model_name="m",engine="{gpu}"'
        cpu = f'{where},model_name="m",engine="cpu"'
        found |= {
            f'penstock_kv_cache_bytes{{{engine},gpu="{gpu}"}}': f"{kv * 1e9:g}x30",
            f"penstock_kv_usage_ratio{{{engine}}}": f"{kv_usage:g}x30",
            f'penstock_kv_cache_bytes{{{cpu},gpu=""}}': "50e9x30",
            f"penstock_kv_usage_ratio{{{cpu}}}": "0x30",
        }
    return found


def verdicts(tier: str, worse: float, same: float) -> Series:
    """So many every hour."""
    return {
        f'penstock_route_verdicts_total{{tier="{tier}",outcome="expert_better"}}': f"0+{worse:g}x25",
        f'penstock_route_verdicts_total{{tier="{tier}",outcome="same"}}': f"0+{same:g}x25",
        f'penstock_route_verdicts_total{{tier="{tier}",outcome="failed"}}': "0+100x25",
    }


def cost(after: float) -> Series:
    """1 dollar for 1,000 tokens for a day, then as much as said for two hours, every five minutes."""
    labels = 'model_name="m",tenant="acme"'
    return {
        f"penstock_cost_dollars_total{{{labels}}}": f"0+1x288 {288 + after:g}+{after:g}x23",
        f'penstock_tokens_total{{{labels},kind="prompt"}}': "0+900x312",
        f'penstock_tokens_total{{{labels},kind="cached"}}': "0+900x312",
        f'penstock_tokens_total{{{labels},kind="completion"}}': "0+100x312",
    }


def throughput(model: str, after: float, waiting: float) -> Series:
    """1,000 tokens every five minutes in the second half of a day, then as many as said for an hour."""
    labels = f'{{model_name="{model}",engine="0"}}'
    return {
        f"penstock_engine_generated_tokens_total{labels}": (
            f"0x144 1000+1000x143 {144_000 + after:g}+{after:g}x11"
        ),
        f"penstock_engine_running{labels}": "4x300",
        f"penstock_engine_waiting{labels}": f"{waiting:g}x300",
    }


def version(instance: str, weights: str, model: str = "m") -> Series:
    names = {"revision": "main", "weights_sha256": weights, "template_sha256": "t", "quantization": "Q8_0"}
    labels = ",".join(f'{key}="{value}"' for key, value in names.items())
    return {f'penstock_model_info{{instance="{instance}",model="{model}",engine="0",{labels}}}': "1x40"}


def replicas(instance: str) -> str:
    return f'penstock_model_replicas_healthy{{instance="{instance}",model_name="m"}}'


HEALTHY = 'penstock_replica_healthy{instance="host:8000",model_name="m",replica="REPLICA"}'
DRAINED = 'penstock_replica_drained{instance="host:8000",model_name="m",replica="REPLICA"}'
FIRST, SECOND = HEALTHY.replace("REPLICA", "a"), HEALTHY.replace("REPLICA", "b")
GPU = {"instance": "host:8000", "gpu": "0"}
XID = 'penstock_gpu_xid_errors_total{instance="host:8000",gpu="0",name="H200",xid="79"}'
THROTTLED = 'penstock_gpu_throttled{instance="host:8000",gpu="0",name="H200",reason="hw_thermal"}'
OOM = 'penstock_engine_oom_total{model_name="m",engine="0"}'
DEATH = 'penstock_engine_deaths_total{model_name="m",cause="out_of_memory"}'
KILLED = DEATH.replace("out_of_memory", "killed")
WAITING = 'penstock_queue_requests{model_name="MODEL",class="standard"}'

CASES = [
    Case(
        "PenstockDown",
        8,
        {'up{job="penstock",instance="host:8000"}': "1x5 0x10"},
        {
            'up{job="penstock",instance="host:8000"}': "1x5 0 1x10",
            'up{job="node",instance="host:9100"}': "0x20",
        },
        {"job": "penstock", "instance": "host:8000"},
    ),
    Case(
        "PenstockNoReplica",
        8,
        {replicas("a"): "2x5 0x10", replicas("b"): "2x20"},  # one server's plenty is of no use to another's
        {replicas("a"): "2x5 1x10", replicas("b"): "1x5 0 1x10"},
        {"instance": "a", "model_name": "m"},
    ),
    Case(  # found none from the start, and none since
        "PenstockNoReplica", 8, {replicas("a"): "0x20"}, {}, {"instance": "a", "model_name": "m"}
    ),
    Case(
        "PenstockReplicaUnhealthy",
        15,
        {FIRST: "1x5 0x10", SECOND: "1x20", FIRST.replace("host", "other"): "1x20"},
        {FIRST: "1x11 0x10", SECOND: "0x20", DRAINED.replace("REPLICA", "b"): "1x20"},
        {"instance": "host:8000", "model_name": "m", "replica": "a"},
    ),
    Case(
        "PenstockErrors",
        15,
        # What tenants' own limits refuse makes the share of failures no smaller.
        {
            **requests("m", ok="0+98x20", failed="0+1x20", shed="0+900x20", rejected="0+500x20"),
            **judged("errors", "0+1x20", "0+98x20"),
        },
        {
            **requests("m", ok="0+1980x20", failed="0+18x20", shed="0+2x20", rejected="0+500x20"),
            **judged("errors", "0+20x20", "0+1980x20"),
            **requests("seldom", ok="0x20", failed="0x8 1x2 2x10"),
            **judged("errors", "0x8 1x2 2x10", "0x20", "seldom"),
            **requests("over-again", ok="0+100x20", failed="0+5x8 40x12"),
            **judged("errors", "0+5x8 40x12", "0+100x20", "over-again"),
        },
    ),
    ttft_case("PenstockTtftVeryHigh", "2"),
    ttft_case("PenstockTtftHigh", "1"),
    Case("PenstockOutOfMemory", 8, {OOM: "0x5 1x10"}, {OOM: "3x20"}),
    Case("PenstockOutOfMemory", 8, {DEATH: "0x5 1x10", OOM: "0x20"}, {DEATH: "1x20", KILLED: "0x5 1x10"}),
    *burns("ttft"),
    *burns("errors"),
    *burns("tpot"),
    *burns("e2e"),
    # A server that drains refuses everybody before it knows what for: counted, and judged by no objective.
    Case(
        "PenstockErrorsBurn1h",
        70,
        judged("errors", "0+15x70", "0+85x70"),
        requests("", ok="0x70", shed="0x65 3 12 20 30"),
        {"model_name": "m", "objective": "errors"},
    ),
    Case(
        "PenstockTpotDeviates",
        DAY + 40,
        tpot("m", 0.02, 0.032),
        {**tpot("m", 0.02, 0.028), **tpot("seldom", 0.02, 0.1, count=5), **tpot("faster", 0.02, 0.01)},
        step=5,
    ),
    Case("PenstockTailLatency", 40, tail("12"), tail("9") | tail("30", "seldom", a_minute=4)),
    Case(
        "PenstockQueueGrowing",
        15,
        by_model(WAITING, m="8+0.3x30"),
        by_model(WAITING, m="50x30", few="6+0.2x30", less="100-3x30"),
    ),
    Case("PenstockEngineRestarts", 25, restarts("0x3 1x5 2x5 3x20"), restarts("0x3 1x5 2x25"), ENGINE),
    Case(
        "PenstockGpuMemoryHigh",
        15,
        # Unlike ones: what is free on one helps nobody on the other, nor what one's engine has set aside.
        {**memory("0", 92, kv=60, kv_usage=0.9), **memory("1", 30, kv=20)},
        {**memory("0", 92, kv=60, kv_usage=0.8), **memory("1", 84)},
        GPU,
    ),
    Case(
        "PenstockGpuMemoryNearlyFull",
        15,
        {**memory("0", 98.75), **memory("1", 1.25)},
        {**memory("0", 89), **memory("1", 95, kv=60, kv_usage=0.9)},
        GPU,
    ),
    Case(
        "PenstockGpuFault",
        12,
        {XID: "_x5 1x20", **memory("0", 50)},  # its first
        {XID: "1x30", **memory("0", 50)},
        {**GPU, "xid": "79"},
    ),
    Case("PenstockGpuFault", 12, {XID: "1x8 2x20"}, {XID: "1x8 1x20"}, {**GPU, "xid": "79"}),
    Case(
        "PenstockGpuFault",
        5,
        {XID: "1x3 2x20", **memory("0", 50)},
        {XID: "1x30", **memory("0", 50)},  # a Prometheus that has just begun does not know how old it is
        {**GPU, "xid": "79"},
    ),
    Case(
        "PenstockGpuThrottled",
        25,
        {THROTTLED: "0x5 1x30"},
        {THROTTLED: "1x15 0 1x20", THROTTLED.replace("hw_thermal", "power_cap"): "1x40"},
        {**GPU, "reason": "hw_thermal"},
    ),
    Case(
        "PenstockRouteQuality",
        DAY + 60,
        verdicts("simple", 2, 10),
        {**verdicts("simple", 2, 14), **verdicts("seldom", 1, 1)},
        {"tier": "simple"},
        step=60,
    ),
    Case("PenstockCostRising", DAY + 110, cost(1.3), cost(1.1), {}, step=5),
    Case(
        "PenstockThroughputFalling",
        DAY + 50,
        throughput("m", 600, waiting=3),
        {**throughput("m", 800, waiting=3), **throughput("idle", 100, waiting=0)},
        step=5,
    ),
    Case(
        "PenstockModelDrift",
        20,
        {**version("a", "1"), **version("b", "2")},
        {**version("a", "1"), **version("b", "1"), **version("b", "2", model="another")},
        {"model": "m"},
    ),
]
