"""The page of a real server: what the catalogue declares, and what its engine has loaded."""

from __future__ import annotations

import re
import subprocess

from tests.observe.pages import samples, series
from tests.packages import needs
from tests.server import Server

CHAT = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}


def test_everything_on_the_page_is_declared(server: Server) -> None:
    assert server.post("/v1/chat/completions", CHAT).status == 200
    declared = series()
    for name, rows in samples(server.get("/metrics").body).items():
        for labels, _ in rows:
            assert set(labels) == set(declared[name]), name


def test_promtool_finds_nothing_wrong_with_our_names(server: Server) -> None:
    page = server.get("/metrics").body
    checked = subprocess.run(
        [needs("promtool", "prometheus"), "check", "metrics"], input=page, capture_output=True
    )
    complaints = (checked.stdout + checked.stderr).decode().splitlines()
    assert [line for line in complaints if not line.startswith("vllm:")] == []


def test_an_engine_says_what_it_has_loaded(server: Server, model_name: str) -> None:
    values = samples(server.get("/metrics").body)
    ((labels, value),) = values["penstock_model_info"]
    assert (labels["model"], labels["engine"], labels["quantization"], value) == (model_name, "0", "Q4_1", 1)
    for name in ("weights_sha256", "template_sha256"):
        assert re.fullmatch("[0-9a-f]{64}", labels[name]), name
    assert values.of("penstock_kv_cache_bytes", model_name=model_name)
    assert values.of("penstock_engine_restarts_total", model_name=model_name) == 0


def test_an_engines_time_for_a_choice_is_parted(server: Server, model_name: str) -> None:
    def parts() -> list[float]:
        values = samples(server.get("/metrics").body)
        names = ("queue_time", "prefill_time", "decode_time")
        found = [f"vllm:request_{name}_seconds" for name in names] + ["vllm:e2e_request_latency_seconds"]
        return [values.of(f"{name}_sum", model_name=model_name) or 0.0 for name in found]

    before = parts()
    assert server.post("/v1/chat/completions", CHAT).status == 200
    queue, prefill, decode, whole = (new - old for new, old in zip(parts(), before, strict=True))
    assert min(prefill, decode) > 0
    assert queue >= 0
    assert queue + prefill + decode <= whole + 0.001
    assert queue + prefill + decode >= whole * 0.5
