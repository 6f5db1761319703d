"""The metrics others scrape: their names, labels and buckets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.engine.config import EngineInfo
from penstock.engine.request import EngineStats
from penstock.gateway.local.backend import EngineBackend
from penstock.observe.engines import WatchedEngine, tell_engines, version_of
from penstock.observe.metrics import Metrics
from tests.observe import pages

INFO = EngineInfo(
    architecture="llama", device="cpu", precision="float32", quantization="none", vocab_size=10,
    max_model_len=64, max_running=4, max_step_tokens=64, block_size=16, num_blocks=100, weight_bytes=1,
    load_seconds=0.1,
)  # fmt: skip
STATS = EngineStats(
    running=2, waiting=1, blocks_total=100, blocks_free=60, blocks_cached=15, steps=9, oom_steps=2,
    prompt_tokens=50, generated_tokens=40, prefix_queries=30, prefix_hits=20, preemptions=3,
    kv_allocated_tokens=100, kv_used_tokens=97,
)  # fmt: skip


def watching(stats: Callable[[], EngineStats]) -> Metrics:
    metrics = Metrics()
    metrics.watch(lambda: tell_engines(metrics.families, [WatchedEngine("m", "0", INFO, stats())]))
    metrics.model("m")
    return metrics


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = {
                name: value for name, value in sample.labels.items() if name not in ("model_name", "engine")
            }
            found[sample.name, tuple(sorted(labels.items()))] = sample.value
            if sample.name.startswith("vllm:"):
                assert sample.labels["model_name"] == "m"
    return found


def test_the_engine_state_is_exported_under_vllms_names() -> None:
    values = samples(watching(lambda: STATS))
    for name, value in {
        "vllm:num_requests_running": 2,
        "penstock_engine_running": 2,
        "vllm:num_requests_waiting": 1,
        "vllm:kv_cache_usage_perc": 0.25,
        "vllm:prompt_tokens_total": 50,
        "vllm:generation_tokens_total": 40,
        "vllm:prefix_cache_queries_total": 30,
        "vllm:prefix_cache_hits_total": 20,
        "vllm:num_preemptions_total": 3,
        "penstock_prefix_hit_tokens_total": 20,
        "penstock_engine_read_bytes_total": 9,
        "penstock_engine_steps_total": 9,
        "penstock_engine_oom_total": 2,
        "penstock_kv_waste_ratio": pytest.approx(0.03),
    }.items():
        assert values[name, ()] == value
    assert values["penstock_kv_blocks", (("state", "held"),)] == 25
    assert values["vllm:cache_config_info", (("block_size", "16"), ("num_gpu_blocks", "100"))] == 1


def test_a_scrape_shows_the_engine_as_it_is_then() -> None:
    stats = EngineStats(generated_tokens=1)
    metrics = watching(lambda: stats)
    assert samples(metrics)["vllm:generation_tokens_total", ()] == 1
    stats = EngineStats(generated_tokens=7)
    assert samples(metrics)["vllm:generation_tokens_total", ()] == 7


def test_latencies_are_histograms_with_the_objectives_as_bounds() -> None:
    metrics = watching(lambda: STATS)
    metrics.model("m").time_to_first_token.observe(0.3)
    metrics.model("m").inter_token_latency.observe(0.02)
    metrics.model("m").time_per_output_token.observe(0.02)
    metrics.model("m").request_latency.observe(4)
    values = samples(metrics)
    for bound, count in (("0.2", 0), ("0.5", 1), ("1.0", 1), ("2.0", 1)):
        assert values["vllm:time_to_first_token_seconds_bucket", (("le", bound),)] == count
    for name in (
        "inter_token_latency_seconds",
        "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds",
    ):
        assert values[f"vllm:{name}_count", ()] == 1


def test_endings_and_answers_are_counted() -> None:
    metrics = watching(lambda: STATS)
    metrics.model("m").finished["stop"].inc()
    metrics.answered("/v1/models", "GET", 200)
    metrics.answered("/v1/models", "GET", 200)
    values = samples(metrics)
    assert values["vllm:request_success_total", (("finished_reason", "stop"),)] == 1
    assert values["vllm:request_success_total", (("finished_reason", "abort"),)] == 0
    route = (("method", "GET"), ("route", "/v1/models"), ("status", "200"))
    assert values["penstock_http_requests_total", route] == 2


def test_two_servers_in_one_process_do_not_share_a_registry() -> None:
    first, second = watching(lambda: STATS), watching(lambda: STATS)
    first.model("m").finished["stop"].inc()
    assert samples(second)["vllm:request_success_total", (("finished_reason", "stop"),)] == 0


def test_the_deaths_of_a_models_engines_are_counted_together_and_from_nothing_on() -> None:
    metrics = Metrics()
    engines = [
        WatchedEngine("m", "0", INFO, STATS, deaths={"out_of_memory": 1, "killed": 2}),
        WatchedEngine("m", "1", INFO, STATS, deaths={"out_of_memory": 1}),
        WatchedEngine("calm", "0", INFO, STATS),
    ]
    metrics.watch(lambda: tell_engines(metrics.families, engines))
    values = pages.samples(metrics.render())
    name = "penstock_engine_deaths_total"
    assert values.of(name, model_name="m", cause="out_of_memory") == 2
    assert values.of(name, model_name="m", cause="killed") == 2
    assert values.of(name, model_name="m", cause="stuck") == 0
    assert values.of(name, model_name="calm", cause="out_of_memory") == 0


def test_a_kv_cache_is_told_with_its_gpu() -> None:
    metrics = Metrics()
    large = replace(INFO, kv_cache_bytes=60)
    engines = [WatchedEngine("m", "0", large, STATS, gpu=3), WatchedEngine("m", "1", large, STATS)]
    metrics.watch(lambda: tell_engines(metrics.families, engines))
    values = pages.samples(metrics.render())
    assert values.of("penstock_kv_cache_bytes", engine="0", gpu="3") == 60
    assert values.of("penstock_kv_cache_bytes", engine="1", gpu="") == 60


def test_metrics_and_console_tell_engines_apart_by_the_same() -> None:
    info = replace(INFO, weights_sha256="w", quantization="Q8_0")
    engine: Any = SimpleNamespace(info=info)
    backend = EngineBackend(engine, cast(Any, None), cast(Any, None), None, "abc123", "t")
    assert backend.version == version_of(info, "abc123", "t")
    metrics = Metrics()
    tell_engines(metrics.families, [WatchedEngine("m", "0", info, STATS, version=backend.version)])
    labels = {"revision": "abc123", "weights_sha256": "w", "template_sha256": "t", "quantization": "Q8_0"}
    assert pages.samples(metrics.render()).of("penstock_model_info", model="m", **labels) == 1
    others = (replace(info, weights_sha256="x"), replace(info, quantization="none"))
    versions = {version_of(each, "abc123", "t") for each in (info, *others)}
    assert len({*versions, version_of(info, "def456", "t"), version_of(info, "abc123", "u")}) == 5
