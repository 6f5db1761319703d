"""Every metric Penstock exports. Engine counters are read when scraped, not copied token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
REQUEST_SECONDS: Final = (0.1, 0.2, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600, 1800)

# vLLM's words for how a request ended.
Ending = Literal["stop", "length", "abort", "error"]


class Metrics:
    """One model's metrics, in a registry of their own."""

    def __init__(self, model: str, info: EngineInfo, stats: Callable[[], EngineStats]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineState(model, info, stats))

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            family = Histogram(name, text, ["model_name"], buckets=buckets, registry=self._registry)
            return family.labels(model)

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
        success = Counter(
            "vllm:request_success",
            "Choices that ended, by how they did.",
            ["model_name", "finished_reason"],
            registry=self._registry,
        )
        endings: tuple[Ending, ...] = ("stop", "length", "abort", "error")
        self.finished: dict[Ending, Counter] = {ending: success.labels(model, ending) for ending in endings}
        self._http = Counter(
            "penstock_http_requests",
            "Requests answered, by route, method and status; 499: the client left first.",
            ["route", "method", "status"],
            registry=self._registry,
        )

    def answered(self, route: str, method: str, status: int) -> None:
        """Count one HTTP answer. `route` is the pattern that matched, never the client's path."""
        self._http.labels(route, method, str(status)).inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _EngineState(Collector):
    """Reads the engine's latest account of itself. Its counters only grow, so they export as counters."""

    def __init__(self, model: str, info: EngineInfo, stats: Callable[[], EngineStats]) -> None:
        self._model = model
        self._info = info
        self._stats = stats

    def describe(self) -> list[Metric]:
        return []  # registering must not read the engine

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        for name, text, value in (
            ("vllm:num_requests_running", "Choices being computed.", stats.running),
            (
                "vllm:num_requests_waiting",
                "Choices waiting for a step, preempted ones included.",
                stats.waiting,
            ),
            ("vllm:kv_cache_usage_perc", "Share of KV blocks held by requests, 0 to 1.", stats.kv_usage),
            (
                "penstock_kv_waste_ratio",
                "Share of allocated KV positions that held no token.",
                stats.kv_waste,
            ),
        ):
            gauge = GaugeMetricFamily(name, text, labels=["model_name"])
            gauge.add_metric([self._model], value)
            yield gauge
        for name, text, value in (
            ("vllm:prompt_tokens", "Prompt tokens taken in.", stats.prompt_tokens),
            ("vllm:generation_tokens", "Tokens generated.", stats.generated_tokens),
            (
                "vllm:prefix_cache_queries",
                "Prompt tokens looked up in the prefix cache.",
                stats.prefix_queries,
            ),
            ("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.", stats.prefix_hits),
            ("vllm:num_preemptions", "Requests set back for lack of KV blocks.", stats.preemptions),
            ("penstock_engine_steps", "Steps computed.", stats.steps),
        ):
            counter = CounterMetricFamily(name, text, labels=["model_name"])
            counter.add_metric([self._model], value)
            yield counter
        held = stats.blocks_total - stats.blocks_free - stats.blocks_cached
        blocks = GaugeMetricFamily(
            "penstock_kv_blocks",
            "KV blocks: held by requests, cached for reuse, free.",
            labels=["model_name", "state"],
        )
        for state, number in (("held", held), ("cached", stats.blocks_cached), ("free", stats.blocks_free)):
            blocks.add_metric([self._model, state], number)
        yield blocks
        config = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Constants of the KV cache.",
            labels=["model_name", "block_size", "num_gpu_blocks"],
        )
        config.add_metric([self._model, str(self._info.block_size), str(self._info.num_blocks)], 1)
        yield config
