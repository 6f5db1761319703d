"""Reading load from what each server really writes."""

from __future__ import annotations

import pytest

from penstock.gateway.backends.load import gauges
from penstock.gateway.backends.presets import PRESETS
from penstock.gateway.balance import Load

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a} b"} 3.0
vllm:num_requests_running{engine="1",model_name="a} b"} 4.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 100.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
"""
SGLANG = b"""# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m"} 7.0
sglang:num_queue_reqs{engine_type="unified",model_name="m"} 9.0
sglang:token_usage{engine_type="unified",model_name="m"} 0.5
"""
LLAMACPP = b"""# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
# HELP llamacpp:requests_deferred Number of requests deferred.
llamacpp:requests_deferred 1"""
TGI = b"tgi_batch_current_size 5\ntgi_queue_size 6\n"
TRTLLM = (
    b"trtllm_num_requests_running 3.0\ntrtllm_num_requests_waiting 2.0\ntrtllm_kv_cache_utilization 0.5\n"
)


DRAFTS = (
    b'vllm:spec_decode_num_draft_tokens_total{engine="0"} 40.0\n'
    b'vllm:spec_decode_num_draft_tokens_total{engine="1"} 60.0\n'
    b'vllm:spec_decode_num_accepted_tokens_total{engine="0"} 30.0\n'
    b'vllm:spec_decode_num_accepted_tokens_total{engine="1"} 30.0\n'
)
PENSTOCK = (
    VLLM.replace(b"vllm:num_requests_running", b"penstock_engine_running")
    .replace(b"vllm:num_requests_waiting", b"penstock_engine_waiting")
    .replace(b"vllm:kv_cache_usage_perc", b"penstock_kv_usage_ratio")
)


@pytest.mark.parametrize(
    ("kind", "page", "load"),
    [
        ("vllm", VLLM, Load(7, 3, 0.75)),
        ("vllm", VLLM + DRAFTS, Load(7, 3, 0.75, 0.6)),
        ("penstock", PENSTOCK, Load(7, 3, 0.75)),
        ("sglang", SGLANG, Load(7, 9, 0.5)),
        ("sglang", SGLANG + b"sglang:spec_accept_rate 0.8\n", Load(7, 9, 0.5, 0.8)),
        ("llamacpp", LLAMACPP, Load(2, 1)),
        ("tgi", TGI, Load(5, 6)),
        ("trtllm", TRTLLM, Load(3, 2, 0.5)),
    ],
)
def test_each_kind_of_server_is_understood(kind: str, page: bytes, load: Load) -> None:
    _, read = PRESETS[kind].load[0]
    assert read(page) == load


def test_llamacpps_slots_and_trtllms_iterations_are_understood() -> None:
    _, slots = PRESETS["llamacpp"].load[1]
    assert slots(b'[{"id":0,"is_processing":true,"prompt":"x"},{"id":1,"is_processing":false}]') == Load(1, 0)
    _, iterations = PRESETS["trtllm"].load[1]
    page = (
        b'[{"iter":1,"numActiveRequests":1},{"iter":2,"numActiveRequests":5,"numQueuedRequests":2,'
        b'"kvCacheStats":{"usedNumBlocks":25,"maxNumBlocks":100,"freeNumBlocks":75}}]'
    )
    assert iterations(page) == Load(3, 2, 0.25)
    assert iterations(b"[]") == Load(0, 0)


@pytest.mark.parametrize(
    "page", [b"", b"\xff\xfe", b"{}", b"null", b"[1]", b"vllm:num_requests_running", VLLM[:40]]
)
def test_a_page_that_says_nothing_is_no_load(page: bytes) -> None:
    for preset in PRESETS.values():
        for _, read in preset.load:
            assert read(page) is None


@pytest.mark.parametrize("value", [b"NaN", b"+Inf", b"-1", b"x", b"", b"1e308"])
def test_what_nobody_can_have_counted_does_not_count(value: bytes) -> None:
    read = gauges(running=b"r", waiting=b"w")
    assert read(b"r " + value + b"\nw 2 1700000000000\n") == Load(0, 2)
