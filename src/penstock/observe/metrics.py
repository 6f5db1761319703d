"""Every metric Penstock exports. Engine counters are read when scraped, not copied token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.engine.config import EngineInfo
from penstock.engine.request import EngineStats

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# An objective must equal a bucket bound, or it cannot be read off: 0.2, 0.5, 1 and 2 s stay in.
TTFT_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20, 40, 80)
TOKEN_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2, 5, 10)
ROUTE_SECONDS: Final = (0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
REQUEST_SECONDS: Final = (0.1, 0.2, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600, 1800)

# vLLM's words for how a request ended.
Ending = Literal["stop", "length", "abort", "error"]


class ModelMetrics:
    """What the answers of one model are measured by; vLLM's names, so that its dashboards show them."""

    def __init__(self, families: Families, model: str) -> None:
        self.time_to_first_token = families.time_to_first_token.labels(model)
        self.inter_token_latency = families.inter_token_latency.labels(model)
        self.time_per_output_token = families.time_per_output_token.labels(model)
        self.request_latency = families.request_latency.labels(model)
        endings: tuple[Ending, ...] = ("stop", "length", "abort", "error")
        self.finished: dict[Ending, Counter] = {
            ending: families.finished.labels(model, ending) for ending in endings
        }


class Families:
    """Metrics by name, of all models together."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, ["model_name"], buckets=buckets, registry=registry)

        def counter(name: str, text: str, labels: list[str]) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self.time_to_first_token = histogram(
            "vllm:time_to_first_token_seconds", "From arrival to the first token of a choice.", TTFT_SECONDS
        )
        self.inter_token_latency = histogram(
            "vllm:inter_token_latency_seconds", "Between tokens of a choice.", TOKEN_SECONDS
        )
        self.time_per_output_token = histogram(
            "vllm:request_time_per_output_token_seconds",
            "Mean time of a choice's tokens after its first.",
            TOKEN_SECONDS,
        )
        self.request_latency = histogram(
            "vllm:e2e_request_latency_seconds", "From arrival to the end of a choice.", REQUEST_SECONDS
        )
        self.finished = counter(
            "vllm:request_success",
            "Choices that ended, by how they did.",
            ["model_name", "finished_reason"],
        )
        self.http = counter(
            "penstock_http_requests",
            "Requests answered, by route, method and status; 499: the client left first.",
            ["route", "method", "status"],
        )
        self.first_byte = histogram(
            "penstock_first_byte_seconds", "From arrival to the first byte of an answer.", TTFT_SECONDS
        )
        self.queued = histogram(
            "penstock_queue_seconds", "From arrival to a place at a replica.", TTFT_SECONDS
        )
        self.tokens = counter(
            "penstock_tokens",
            "Tokens billed, by tenant and kind: prompt, cached, completion; saved: prompt tokens left out.",
            ["model_name", "tenant", "kind"],
        )
        self.cost = counter(
            "penstock_cost_dollars", "What was billed, in US dollars.", ["model_name", "tenant"]
        )
        self.refused = counter(
            "penstock_requests_refused",
            "Requests refused before they reached a replica, by the error's code.",
            ["model_name", "code"],
        )
        self.retries = counter(
            "penstock_retries", "Requests sent to another replica after a failure.", ["model_name"]
        )
        self.fallbacks = counter(
            "penstock_fallbacks", "Requests given to another model after a failure.", ["model_name", "to"]
        )
        self.routed = counter(
            "penstock_route_requests",
            "Requests for auto, by the tier that was chosen and why: quality, pinned, promoted, cost cap.",
            ["tier", "reason"],
        )
        self.route_answers = counter(
            "penstock_route_answers", "Requests for auto that a tier has answered.", ["tier"]
        )
        self.passed_over = counter(
            "penstock_route_passed_over",
            "Times that a tier could not answer and another was asked.",
            ["tier"],
        )
        self.route_seconds = Histogram(
            "penstock_route_seconds",
            "CPU time of rating a request for auto.",
            buckets=ROUTE_SECONDS,
            registry=registry,
        )
        self.route_dollars = counter(
            "penstock_route_dollars",
            "US dollars of requests for auto: spent; always_expert, had the expert answered them; and what "
            "routing itself took: classifier, cascade, monitor.",
            ["kind"],
        )
        self.route_quality = counter(
            "penstock_route_quality",
            "Sums of the predicted quality of answers to auto: of the tier that answered, of the expert.",
            ["kind"],
        )
        self.verdicts = counter(
            "penstock_route_verdicts",
            "Answers checked against the expert: same, expert_better, low_better, unclear, failed.",
            ["tier", "outcome"],
        )
        self.escalated = counter(
            "penstock_route_escalations", "Answers that the second look took back.", ["tier"]
        )
        self.cache = counter(
            "penstock_cache_requests",
            "Requests by what the response cache did: hit, semantic, shared, miss, bypass.",
            ["model_name", "outcome"],
        )
        self.cache_tokens = counter(
            "penstock_cache_saved_tokens", "Tokens that cached answers did not take.", ["model_name"]
        )
        self.cache_dollars = counter(
            "penstock_cache_saved_dollars", "US dollars that cached answers did not cost.", ["model_name"]
        )


class Metrics:
    """Everything one process measures, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.families = Families(self._registry)
        self._models: dict[str, ModelMetrics] = {}
        self._routes: dict[tuple[str, str, int], Counter] = {}

    def model(self, name: str) -> ModelMetrics:
        known = self._models.get(name)
        if known is None:
            known = self._models[name] = ModelMetrics(self.families, name)
        return known

    def answered(self, route: str, method: str, status: int) -> None:
        """Count one HTTP answer. `route` is the pattern that matched, never the client's path."""
        counter = self._routes.get((route, method, status))
        if counter is None:
            counter = self.families.http.labels(route, method, str(status))
            self._routes[route, method, status] = counter
        counter.inc()

    def watch(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Export what `collect` gives, too, whenever somebody asks."""
        self._registry.register(_Collected(collect))

    def render(self) -> bytes:
        return generate_latest(self._registry)


@dataclass(frozen=True, slots=True)
class WatchedEngine:
    """An engine's latest account of itself."""

    model: str
    number: str  # among the engines of its model
    info: EngineInfo
    stats: EngineStats


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def describe(self) -> list[Metric]:
        return []  # registering must not ask anybody

    def collect(self) -> Iterator[Metric]:
        yield from self._collect()


def engine_metrics(engines: Iterable[WatchedEngine]) -> Iterator[Metric]:
    """The engines' latest accounts. Their counters only grow, so they export as counters."""
    engines = list(engines)
    for name, text, gauge in _GAUGES:
        family = GaugeMetricFamily(name, text, labels=_LABELS)
        for engine in engines:
            family.add_metric([engine.model, engine.number], gauge(engine.stats))
        yield family
    for name, text, count in _COUNTERS:
        counters = CounterMetricFamily(name, text, labels=_LABELS)
        for engine in engines:
            counters.add_metric([engine.model, engine.number], count(engine.stats))
        yield counters
    yield _blocks(engines)
    config = GaugeMetricFamily(
        "vllm:cache_config_info",
        "Constants of the KV cache.",
        labels=[*_LABELS, "block_size", "num_gpu_blocks"],
    )
    for engine in engines:
        info = engine.info
        config.add_metric([engine.model, engine.number, str(info.block_size), str(info.num_blocks)], 1)
    yield config


def _blocks(engines: Iterable[WatchedEngine]) -> Metric:
    blocks = GaugeMetricFamily(
        "penstock_kv_blocks",
        "KV blocks: held by requests, cached for reuse, free.",
        labels=[*_LABELS, "state"],
    )
    for engine in engines:
        stats = engine.stats
        held = stats.blocks_total - stats.blocks_free - stats.blocks_cached
        for state, number in (
            ("held", held),
            ("cached", stats.blocks_cached),
            ("free", stats.blocks_free),
        ):
            blocks.add_metric([engine.model, engine.number, state], number)
    return blocks


_LABELS: Final = ["model_name", "engine"]
_Reading = tuple[str, str, Callable[[EngineStats], float]]

_GAUGES: Final[tuple[_Reading, ...]] = (
    ("vllm:num_requests_running", "Choices being computed.", lambda stats: stats.running),
    (
        "vllm:num_requests_waiting",
        "Choices waiting for a step, preempted ones included.",
        lambda stats: stats.waiting,
    ),
    (
        "vllm:kv_cache_usage_perc",
        "Share of KV blocks held by requests, 0 to 1.",
        lambda stats: stats.kv_usage,
    ),
    (
        "penstock_kv_waste_ratio",
        "Share of allocated KV positions that held no token.",
        lambda stats: stats.kv_waste,
    ),
)
_COUNTERS: Final[tuple[_Reading, ...]] = (
    ("vllm:prompt_tokens", "Prompt tokens taken in.", lambda stats: stats.prompt_tokens),
    ("vllm:generation_tokens", "Tokens generated.", lambda stats: stats.generated_tokens),
    (
        "vllm:prefix_cache_queries",
        "Prompt tokens looked up in the prefix cache.",
        lambda stats: stats.prefix_queries,
    ),
    (
        "vllm:prefix_cache_hits",
        "Prompt tokens found in the prefix cache.",
        lambda stats: stats.prefix_hits,
    ),
    ("vllm:num_preemptions", "Requests set back for lack of KV blocks.", lambda stats: stats.preemptions),
    ("penstock_engine_steps", "Steps computed.", lambda stats: stats.steps),
    (
        "penstock_engine_oom",
        "Steps that the device had no memory for, computed in smaller ones instead.",
        lambda stats: stats.oom_steps,
    ),
)
