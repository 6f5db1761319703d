"""Every metric that Penstock exports, declared once; `docs/metrics.md` and the checks of rules come from it.

Counters are exported with `_total` at their end. Labels that clients could fill are capped where they are
made (`labels.py`).
"""

from __future__ import annotations

from typing import Any, Final

from penstock.observe.instruments import Counter, Family, Gauge, Histogram, Spec, new_family

# MISSION's objectives stay in, whatever is promised: 0.2, 0.5, 1 and 2 s; 30 tokens a second.
TTFT_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20, 40, 80)
# As clients see it, in steps of about an eighth where people look: a quantile is never off by more than one.
CLIENT_TTFT_SECONDS: Final = (
    0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.045,
    0.05, 0.056, 0.063, 0.071, 0.08, 0.09, 0.1, 0.112, 0.125, 0.14, 0.16, 0.18, 0.2, 0.225, 0.25, 0.28,
    0.315, 0.35, 0.4, 0.45, 0.5, 0.56, 0.63, 0.71, 0.8, 0.9, 1, 1.12, 1.25, 1.4, 1.6, 1.8, 2, 2.25, 2.5,
    2.8, 3.15, 3.5, 4, 4.5, 5, 6, 7.5, 10, 15, 20, 40, 80,
)  # fmt: skip
TOKEN_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 1 / 30, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2, 5, 10)
ROUTE_SECONDS: Final = (0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
REQUEST_SECONDS: Final = (0.1, 0.2, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600, 1800)
LAG_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
LENGTHS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)

_MODEL: Final = ("model_name",)
_CLASS: Final = ("model_name", "class")
_REPLICA: Final = ("model_name", "replica")
_ENGINE: Final = ("model_name", "engine")
_GPU: Final = ("gpu", "name")


def _counter(name: str, help: str, *labels: str, also: str = "", merge: Any = "sum") -> Any:
    return Spec(name, "counter", help, labels, also=also, merge=merge)


def _gauge(name: str, help: str, *labels: str, also: str = "", merge: Any = "sum") -> Any:
    return Spec(name, "gauge", help, labels, also=also, merge=merge)


def _histogram(
    name: str, help: str, bounds: tuple[float, ...], *labels: str, objective: str = "", also: str = ""
) -> Any:
    return Spec(name, "histogram", help, labels, tuple(map(float, bounds)), objective, also)


class Requests:
    """Requests for a model, each counted when it has ended, wherever it was answered."""

    requests: Family[Counter] = _counter(
        "penstock_requests",
        "Requests for a model by how they ended: ok; failed, not by the client's fault; shed, that is "
        "refused for a limit, a full queue, a deadline or a shutdown; rejected, since they were wrong; "
        "aborted by the client.",
        *_CLASS, "outcome",
    )  # fmt: skip
    ttft: Family[Histogram] = _histogram(
        "penstock_time_to_first_token_seconds",
        "From arrival to the first token of a request's answer, or to the first byte where there are none. A "
        "request that never got one is not in it.",
        CLIENT_TTFT_SECONDS, *_CLASS, objective="ttft",
    )  # fmt: skip
    tpot: Family[Histogram] = _histogram(
        "penstock_time_per_output_token_seconds",
        "Mean time of a request's tokens after its first.",
        TOKEN_SECONDS, *_CLASS, objective="tpot",
    )  # fmt: skip
    e2e: Family[Histogram] = _histogram(
        "penstock_e2e_request_latency_seconds",
        "From arrival to the end of an answer.",
        REQUEST_SECONDS, *_CLASS, objective="e2e",
    )  # fmt: skip
    first_byte: Family[Histogram] = _histogram(
        "penstock_first_byte_seconds",
        "From arrival to the first byte of an answer.",
        TTFT_SECONDS, *_MODEL, objective="ttft",
    )  # fmt: skip
    queued: Family[Histogram] = _histogram(
        "penstock_queue_seconds",
        "From arrival to a place at a replica.",
        TTFT_SECONDS, *_CLASS, objective="ttft",
    )  # fmt: skip
    phases: Family[Counter] = _counter(
        "penstock_phase_seconds",
        "Where requests' time went: admission, cache, route, queue, attempt; in an attempt engine_queue, "
        "prefill, decode.",
        *_MODEL, "phase",
    )  # fmt: skip
    prompt_length: Family[Histogram] = _histogram(
        "penstock_request_prompt_tokens", "Prompt tokens of a request that was answered.", LENGTHS, *_MODEL
    )
    answer_length: Family[Histogram] = _histogram(
        "penstock_request_completion_tokens", "Tokens of a request's answer.", LENGTHS, *_MODEL
    )
    slow: Family[Counter] = _counter(
        "penstock_slow_requests", "Slow requests, by what took longest of what should not.", *_MODEL, "cause"
    )
    refused: Family[Counter] = _counter(
        "penstock_requests_refused",
        "Requests refused before they reached a replica, by the error's code.",
        *_MODEL, "code",
    )  # fmt: skip
    retries: Family[Counter] = _counter(
        "penstock_retries", "Requests sent to another replica after a failure.", *_MODEL
    )
    fallbacks: Family[Counter] = _counter(
        "penstock_fallbacks", "Requests given to another model after a failure.", *_MODEL, "to"
    )
    http: Family[Counter] = _counter(
        "penstock_http_requests",
        "Requests answered, by route, method and status; 499: the client left first.",
        "route", "method", "status",
    )  # fmt: skip


class Objectives:
    """What the configuration promises, and how many requests had it."""

    judged: Family[Counter] = _counter(
        "penstock_slo_requests",
        "Requests by objective (ttft, errors, tpot, e2e) and verdict (good, bad): bad were slow, failed or "
        "shed. Not in it: rejected ones, those beyond their tenant's own limits, those refused while the "
        "server drained or before their model was known; of ttft, answers whose first token only another "
        "server knows of; of tpot, those without one; of tpot and e2e, those of class batch.",
        *_MODEL, "objective", "verdict",
    )  # fmt: skip
    slo_bound: Family[Gauge] = _gauge(
        "penstock_slo_bound_seconds",
        "Bound of an objective; batch_ttft is that of ttft for class batch.",
        *_MODEL, "objective", merge="max",
    )  # fmt: skip
    slo_target: Family[Gauge] = _gauge(
        "penstock_slo_target_ratio", "Share of requests that must be good.", "objective", merge="max"
    )


class Accounts:
    """What requests took and cost, as they were billed."""

    tokens: Family[Counter] = _counter(
        "penstock_tokens",
        "Tokens billed, by tenant and kind: prompt, cached (of the prompt), completion; saved: prompt tokens "
        "left out.",
        *_MODEL, "tenant", "kind",
    )  # fmt: skip
    cost: Family[Counter] = _counter(
        "penstock_cost_dollars", "What was billed, in US dollars.", *_MODEL, "tenant"
    )
    tenant_requests: Family[Counter] = _counter(
        "penstock_tenant_requests", "Requests that have ended, by tenant.", "tenant", "outcome"
    )


class Replicas:
    """The queue of each model and who answers."""

    waiting: Family[Gauge] = _gauge("penstock_queue_requests", "Requests that wait for a replica.", *_CLASS)
    waiting_tokens: Family[Gauge] = _gauge("penstock_queue_tokens", "Tokens that these may take.", *_MODEL)
    healthy: Family[Gauge] = _gauge(
        "penstock_replica_healthy",
        "Whether it gets requests: 1 or 0. Of several front processes, the worst that one has seen.",
        *_REPLICA, merge="min",
    )  # fmt: skip
    replicas_healthy: Family[Gauge] = _gauge(
        "penstock_model_replicas_healthy",
        "Replicas of a model that get requests; 0 where it has none. Of several front processes, the fewest.",
        *_MODEL, merge="min",
    )  # fmt: skip
    drained: Family[Gauge] = _gauge(
        "penstock_replica_drained",
        "Whether an administrator has taken it out: 1 or 0.",
        *_REPLICA,
        merge="max",
    )
    replica_requests: Family[Gauge] = _gauge("penstock_replica_requests", "Requests it has.", *_REPLICA)
    replica_capacity: Family[Gauge] = _gauge(
        "penstock_replica_capacity", "Choices that it should have at once.", *_REPLICA, merge="max"
    )
    replica_running: Family[Gauge] = _gauge(
        "penstock_replica_running", "Requests that a server computes, as it says.", *_REPLICA, merge="max"
    )
    replica_waiting: Family[Gauge] = _gauge(
        "penstock_replica_waiting", "Requests that wait in a server, as it says.", *_REPLICA, merge="max"
    )
    replica_kv_usage: Family[Gauge] = _gauge(
        "penstock_replica_kv_usage_ratio", "Share of a server's KV cache in use, as it says.", *_REPLICA,
        merge="max",
    )  # fmt: skip
    replica_acceptance: Family[Gauge] = _gauge(
        "penstock_replica_acceptance_ratio",
        "Share of the tokens drafted ahead that a server has accepted, as it says.",
        *_REPLICA, merge="max",
    )  # fmt: skip


class Tiers:
    """`model: auto`: which tier answers, how well, for how much."""

    routed: Family[Counter] = _counter(
        "penstock_route_requests",
        "Requests for auto, by the tier that was chosen and why: quality, pinned, promoted, cost cap.",
        "tier", "reason",
    )  # fmt: skip
    route_answers: Family[Counter] = _counter(
        "penstock_route_answers", "Requests for auto that a tier has answered.", "tier"
    )
    passed_over: Family[Counter] = _counter(
        "penstock_route_passed_over", "Times that a tier could not answer and another was asked.", "tier"
    )
    route_seconds: Family[Histogram] = _histogram(
        "penstock_route_seconds", "CPU time of rating a request for auto.", ROUTE_SECONDS
    )
    route_dollars: Family[Counter] = _counter(
        "penstock_route_dollars",
        "US dollars of requests for auto: spent; always_expert, had the expert answered them; and what "
        "routing itself took: classifier, cascade, monitor.",
        "kind",
    )
    route_quality: Family[Counter] = _counter(
        "penstock_route_quality",
        "Sums of the predicted quality of answers to auto: of the tier that answered, of the expert.",
        "kind",
    )
    verdicts: Family[Counter] = _counter(
        "penstock_route_verdicts",
        "Answers checked against the expert: same, expert_better, low_better, unclear, failed.",
        "tier", "outcome",
    )  # fmt: skip
    escalated: Family[Counter] = _counter(
        "penstock_route_escalations", "Answers that the second look took back.", "tier"
    )


class Cache:
    """The response cache."""

    cache: Family[Counter] = _counter(
        "penstock_cache_requests",
        "Requests by what the response cache did: hit, semantic, shared, miss, bypass.",
        *_MODEL, "outcome",
    )  # fmt: skip
    cache_tokens: Family[Counter] = _counter(
        "penstock_cache_saved_tokens", "Tokens that cached answers did not take.", *_MODEL
    )
    cache_dollars: Family[Counter] = _counter(
        "penstock_cache_saved_dollars", "US dollars that cached answers did not cost.", *_MODEL
    )


class Engines:
    """Engines that this server has started, as they account for themselves."""

    running: Family[Gauge] = _gauge(
        "penstock_engine_running", "Choices being computed.", *_ENGINE, also="vllm:num_requests_running"
    )
    engine_waiting: Family[Gauge] = _gauge(
        "penstock_engine_waiting", "Choices waiting for a step, preempted ones included.", *_ENGINE,
        also="vllm:num_requests_waiting",
    )  # fmt: skip
    kv_usage: Family[Gauge] = _gauge(
        "penstock_kv_usage_ratio", "Share of KV blocks held by requests, 0 to 1.", *_ENGINE,
        also="vllm:kv_cache_usage_perc",
    )  # fmt: skip
    kv_bytes: Family[Gauge] = _gauge(
        "penstock_kv_cache_bytes",
        "Memory set aside for the KV cache, used or not; gpu: empty on the CPU, or where nobody says which.",
        *_ENGINE, "gpu",
    )  # fmt: skip
    kv_waste: Family[Gauge] = _gauge(
        "penstock_kv_waste_ratio", "Share of allocated KV positions that held no token.", *_ENGINE
    )
    kv_blocks: Family[Gauge] = _gauge(
        "penstock_kv_blocks", "KV blocks: held by requests, cached for reuse, free.", *_ENGINE, "state"
    )
    prompt_tokens: Family[Counter] = _counter(
        "penstock_engine_prompt_tokens",
        "Prompt tokens taken in.",
        *_ENGINE,
        also="vllm:prompt_tokens",
        merge="max",
    )
    generated_tokens: Family[Counter] = _counter(
        "penstock_engine_generated_tokens",
        "Tokens generated.",
        *_ENGINE,
        also="vllm:generation_tokens",
        merge="max",
    )
    prefix_queries: Family[Counter] = _counter(
        "penstock_prefix_queried_tokens", "Prompt tokens looked up in the prefix cache.", *_ENGINE,
        also="vllm:prefix_cache_queries", merge="max",
    )  # fmt: skip
    prefix_hits: Family[Counter] = _counter(
        "penstock_prefix_hit_tokens", "Prompt tokens found in the prefix cache.", *_ENGINE,
        also="vllm:prefix_cache_hits", merge="max",
    )  # fmt: skip
    preemptions: Family[Counter] = _counter(
        "penstock_preemptions", "Requests set back for lack of KV blocks.", *_ENGINE,
        also="vllm:num_preemptions", merge="max",
    )  # fmt: skip
    steps: Family[Counter] = _counter("penstock_engine_steps", "Steps computed.", *_ENGINE, merge="max")
    failed_steps: Family[Counter] = _counter(
        "penstock_engine_failed_steps", "Steps that the device did not get through.", *_ENGINE, merge="max"
    )
    oom_steps: Family[Counter] = _counter(
        "penstock_engine_oom",
        "Steps that the device had no memory for, computed in smaller ones instead.",
        *_ENGINE,
        merge="max",
    )
    read_bytes: Family[Counter] = _counter(
        "penstock_engine_read_bytes",
        "Bytes of weights that steps have read: memory was read at least so fast. Experts that a step left "
        "out are counted too.",
        *_ENGINE,
        merge="max",
    )
    restarts: Family[Counter] = _counter("penstock_engine_restarts", "Times it was started again.", *_ENGINE)
    deaths: Family[Counter] = _counter(
        "penstock_engine_deaths",
        "Engines that ended without being asked to: out_of_memory, ended by the kernel or by themselves for "
        "want of it; killed by somebody else; stuck, and ended for that; crashed.",
        *_MODEL, "cause", merge="max",
    )  # fmt: skip
    cache_config: Family[Gauge] = _gauge(
        "penstock_kv_config_info", "Constants of the KV cache.", *_ENGINE, "block_size", "num_gpu_blocks",
        also="vllm:cache_config_info", merge="max",
    )  # fmt: skip
    model_info: Family[Gauge] = _gauge(
        "penstock_model_info",
        "What an engine has loaded. Replicas of one model that differ here answer differently. The weights' "
        "hash is of each file's size and 64 blocks of it, not of every byte.",
        "model", "engine", "revision", "weights_sha256", "template_sha256", "quantization", merge="max",
    )  # fmt: skip


class Choices:
    """Choices (a request has n of them) that engines of this server have computed."""

    time_to_first_token: Family[Histogram] = _histogram(
        "penstock_choice_time_to_first_token_seconds", "From arrival to the first token of a choice.",
        TTFT_SECONDS, *_MODEL, objective="ttft", also="vllm:time_to_first_token_seconds",
    )  # fmt: skip
    inter_token_latency: Family[Histogram] = _histogram(
        "penstock_inter_token_latency_seconds", "Between tokens of a choice.",
        TOKEN_SECONDS, *_MODEL, objective="tpot", also="vllm:inter_token_latency_seconds",
    )  # fmt: skip
    time_per_output_token: Family[Histogram] = _histogram(
        "penstock_choice_time_per_output_token_seconds", "Mean time of a choice's tokens after its first.",
        TOKEN_SECONDS, *_MODEL, objective="tpot", also="vllm:request_time_per_output_token_seconds",
    )  # fmt: skip
    request_latency: Family[Histogram] = _histogram(
        "penstock_choice_e2e_latency_seconds", "From arrival to the end of a choice.",
        REQUEST_SECONDS, *_MODEL, objective="e2e", also="vllm:e2e_request_latency_seconds",
    )  # fmt: skip
    queue_time: Family[Histogram] = _histogram(
        "penstock_choice_queue_seconds", "From arrival to the first step that a choice was in.",
        TTFT_SECONDS, *_MODEL, also="vllm:request_queue_time_seconds",
    )  # fmt: skip
    prefill_time: Family[Histogram] = _histogram(
        "penstock_choice_prefill_seconds", "From a choice's first step to its first token.",
        TTFT_SECONDS, *_MODEL, also="vllm:request_prefill_time_seconds",
    )  # fmt: skip
    decode_time: Family[Histogram] = _histogram(
        "penstock_choice_decode_seconds", "From a choice's first token to its last.",
        REQUEST_SECONDS, *_MODEL, also="vllm:request_decode_time_seconds",
    )  # fmt: skip
    finished: Family[Counter] = _counter(
        "penstock_choices", "Choices that ended, by how they did.", *_MODEL, "finished_reason",
        also="vllm:request_success",
    )  # fmt: skip


class Gpus:
    """NVIDIA GPUs that this server can see, as their driver says; absent where there are none."""

    gpu_memory_used: Family[Gauge] = _gauge("penstock_gpu_memory_used_bytes", "Memory in use.", *_GPU)
    gpu_memory_total: Family[Gauge] = _gauge("penstock_gpu_memory_total_bytes", "Memory there is.", *_GPU)
    gpu_utilisation: Family[Gauge] = _gauge(
        "penstock_gpu_utilisation_ratio", "Share of time in which a kernel ran.", *_GPU
    )
    gpu_sm_active: Family[Gauge] = _gauge(
        "penstock_gpu_sm_active_ratio", "Share of multiprocessors at work (Hopper and later).", *_GPU
    )
    gpu_tensor_active: Family[Gauge] = _gauge(
        "penstock_gpu_tensor_active_ratio", "Share of time the tensor cores worked (Hopper and later).", *_GPU
    )
    gpu_bandwidth: Family[Gauge] = _gauge(
        "penstock_gpu_memory_bandwidth_ratio",
        "Memory traffic as a share of what the memory can do (Hopper and later).",
        *_GPU,
    )
    gpu_temperature: Family[Gauge] = _gauge("penstock_gpu_temperature_celsius", "Its temperature.", *_GPU)
    gpu_power: Family[Gauge] = _gauge("penstock_gpu_power_watts", "Power it draws.", *_GPU)
    gpu_power_limit: Family[Gauge] = _gauge("penstock_gpu_power_limit_watts", "Power it may draw.", *_GPU)
    gpu_energy: Family[Counter] = _counter(
        "penstock_gpu_energy_joules", "Energy since the driver was loaded.", *_GPU, merge="max"
    )
    gpu_clock: Family[Gauge] = _gauge("penstock_gpu_sm_clock_hertz", "Clock of the multiprocessors.", *_GPU)
    gpu_throttled: Family[Gauge] = _gauge(
        "penstock_gpu_throttled", "Whether its clocks are held down now, by reason: 1 or 0.", *_GPU, "reason"
    )
    gpu_xid: Family[Counter] = _counter(
        "penstock_gpu_xid_errors",
        "Errors that the driver has reported, by XID.",
        *_GPU,
        "xid",
    )


class Process:
    """The front processes themselves."""

    build: Family[Gauge] = _gauge("penstock_build_info", "What runs here.", "version", "python", merge="max")
    start_time: Family[Gauge] = _gauge(
        "penstock_start_time_seconds", "When it started, since 1970.", "process"
    )
    memory: Family[Gauge] = _gauge("penstock_process_memory_bytes", "Memory it holds.", "process")
    cpu: Family[Counter] = _counter("penstock_process_cpu_seconds", "CPU time it has used.", "process")
    loop_lag: Family[Histogram] = _histogram(
        "penstock_loop_lag_seconds", "By how much the event loop was late for its clock.", LAG_SECONDS
    )
    traces: Family[Counter] = _counter(
        "penstock_traces", "Requests by what became of their traces: sent, lost.", "outcome"
    )


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PARTS: Final = (Requests, Objectives, Accounts, Replicas, Tiers, Cache, Engines, Choices, Gpus, Process)


class Families(Requests, Objectives, Accounts, Replicas, Tiers, Cache, Engines, Choices, Gpus, Process):
    """One process's instruments, each under the name by which it is declared above."""

    def __init__(self) -> None:
        self.all: list[Family[Any]] = []
        for name, spec in specs().items():
            made = new_family(spec)
            setattr(self, name, made)
            self.all.append(made)


def specs(*parts: type) -> dict[str, Spec]:
    """What is declared, in these parts or all, by the attribute of `Families`."""
    return {
        name: spec for part in parts or PARTS for name, spec in vars(part).items() if isinstance(spec, Spec)
    }
