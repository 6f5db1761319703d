"""The catalogue says what there is: the documentation and the page of a server are read off it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.config import GatewayConfig, MetricsConfig
from penstock.observe.catalogue import Families, specs
from penstock.observe.document import document
from penstock.observe.metrics import Metrics
from tests.observe.pages import samples, series

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
# What vLLM exports and dashboards, autoscalers and inference gateways read.
VLLMS = [
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "cache_config_info",
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "num_preemptions_total",
    "request_success_total",
    "time_to_first_token_seconds_bucket",
    "inter_token_latency_seconds_bucket",
    "request_time_per_output_token_seconds_bucket",
    "e2e_request_latency_seconds_bucket",
    "request_queue_time_seconds_bucket",
    "request_prefill_time_seconds_bucket",
    "request_decode_time_seconds_bucket",
]


def test_the_documentation_is_the_catalogue() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert document(text) == text, "Run `python -m penstock.observe.document docs/metrics.md`."


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")
def test_the_documented_queries_are_queries_for_what_there_is(tmp_path: Path) -> None:
    asked = DOCUMENT.read_text(encoding="utf-8").partition("## Often asked")[2].partition("<!--")[0]
    queries = [query.replace("\\|", "|") for query in re.findall(r"\| `(.+)` \|\n", asked)]
    assert len(queries) > 5
    rules = "".join(
        f"      - record: a:b{number}\n        expr: {query!r}\n" for number, query in enumerate(queries)
    )
    file = tmp_path / "rules.yml"
    file.write_text(f"groups:\n  - name: g\n    rules:\n{rules}")
    checked = subprocess.run(
        ["promtool", "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert "SUCCESS" in checked.stdout, checked.stdout + checked.stderr
    known = series()
    for query in queries:
        for name in re.findall(r"(?:penstock_|vllm:)\w+", query):
            assert name in known, name


def test_names_follow_the_rules_of_the_field() -> None:
    names = [name for spec in specs().values() for name in (spec.name, spec.also) if name]
    assert len(names) == len(set(names))
    for spec in specs().values():
        assert re.fullmatch(r"penstock_[a-z0-9_]+", spec.name), "ours are in no other project's namespace"
        assert not spec.name.endswith("_total"), "a counter gets that by itself"
        assert spec.also == "" or spec.also.startswith("vllm:")
        assert spec.help.endswith("."), spec.name
        assert list(spec.bounds) == sorted(set(spec.bounds))


def test_vllms_names_are_there_unless_they_are_not_wanted() -> None:
    assert {f"vllm:{name}" for name in VLLMS} <= set(series())
    assert not any(name.startswith("vllm:") for name in series(vllm_names=False))
    metrics = Metrics(GatewayConfig(metrics=MetricsConfig(vllm_names=False)))
    metrics.model("m").finished["stop"].inc()
    values = samples(metrics.render())
    assert values.of("penstock_choices_total", finished_reason="stop") == 1
    assert not any(name.startswith("vllm:") for name in values)


def test_an_instrument_takes_the_labels_that_were_declared() -> None:
    families = Families()
    assert families.retries.labels("m") is families.retries.labels("m")
    with pytest.raises(ValueError, match="penstock_retries has the labels"):
        families.retries.labels("m", "n")


def test_a_page_says_only_what_the_catalogue_declares() -> None:
    metrics = Metrics()
    for family in metrics.families.all:
        family.labels(*("x" for _ in family.spec.labels))
    found = {
        name: set().union(*(labels for labels, _ in rows)) for name, rows in samples(metrics.render()).items()
    }
    assert found == {name: set(labels) for name, labels in series().items()}
