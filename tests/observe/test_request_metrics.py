"""Records of requests become metrics: counted once, judged by what was promised, bounded in their labels."""

from __future__ import annotations

import time

import pytest

from penstock.config import (
    GatewayConfig,
    MetricsConfig,
    ModelConfig,
    ObjectivesConfig,
    SloConfig,
    TenantConfig,
)
from penstock.gateway.accounts.limits import CONCURRENCY, QUOTA, RATE, TOKENS
from penstock.observe.labels import OTHER
from penstock.observe.metrics import Metrics
from penstock.observe.objectives import Objective, Promise, Promises
from penstock.observe.record import Outcome, Phase, RequestRecord
from penstock.observe.request_metrics import RequestMetrics
from tests.observe.pages import Samples, samples

MODELS = (ModelConfig(name="m", slo=SloConfig(ttft=0.123, tpot=0.04)), ModelConfig(name="other"))
CONFIG = GatewayConfig(models=MODELS, slo=ObjectivesConfig(ttft=0.456))


def record(
    outcome: Outcome = "ok", *, ttft: float | None = 0.1, seconds: float = 1.0, **fields: object
) -> RequestRecord:
    made = RequestRecord("r", "createChatCompletion", 0.0, time.time(), model="m", served_by="m")
    made.service_class, made.tenant, made.outcome = "standard", "acme", outcome
    made.ended = seconds
    made.choices = 1
    if ttft is not None:
        made.first_token, made.last_token = ttft, made.ended
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def counted(*records: RequestRecord, config: GatewayConfig = CONFIG) -> Samples:
    metrics = Metrics()
    metrics.configure(config, [model.name for model in config.models])
    listener = RequestMetrics(metrics)
    for each in records:
        listener.finished(each)
    return samples(metrics.render())


def test_a_request_is_counted_with_its_times_and_tokens() -> None:
    phases = [
        Phase("admission", 0.0, 0.01),
        Phase("queue", 0.01, 0.03),
        Phase("attempt", 0.03, 1.0, "a"),
        Phase("queue", 0.03, 0.05, "engine"),
        Phase("prefill", 0.05, 0.1),
        Phase("decode", 0.1, 1.0),
    ]
    values = counted(
        record(
            prompt_tokens=50,
            cached_tokens=30,
            completion_tokens=10,
            dollars=0.25,
            saved_tokens=7,
            phases=phases,
        )
    )
    assert values.of("penstock_requests_total", model_name="m", outcome="ok", **{"class": "standard"}) == 1
    for name, value in (
        ("penstock_time_to_first_token_seconds", 0.1),
        ("penstock_time_per_output_token_seconds", 0.1),
        ("penstock_e2e_request_latency_seconds", 1.0),
        ("penstock_queue_seconds", 0.03),
        ("penstock_request_prompt_tokens", 50),
        ("penstock_request_completion_tokens", 10),
    ):
        assert values.of(f"{name}_count", model_name="m") == 1, name
        assert values.of(f"{name}_sum", model_name="m") == pytest.approx(value), name
    for phase, seconds in (("queue", 0.02), ("engine_queue", 0.02), ("prefill", 0.05), ("decode", 0.9)):
        assert values.of("penstock_phase_seconds_total", phase=phase) == pytest.approx(seconds), phase
    for kind, tokens in (("prompt", 50), ("cached", 30), ("completion", 10), ("saved", 7)):
        assert values.of("penstock_tokens_total", tenant="acme", kind=kind) == tokens
    assert values.of("penstock_cost_dollars_total", tenant="acme") == 0.25
    assert values.of("penstock_tenant_requests_total", tenant="acme", outcome="ok") == 1
    assert values.of("penstock_requests_refused_total") is None


def test_a_refusal_is_counted_by_its_code_and_has_no_times() -> None:
    values = counted(
        record("shed", ttft=None, code="queue_full"),
        record("failed", ttft=None, code="bad_gateway", phases=[Phase("attempt", 0.0, 0.5)]),
        record("shed", ttft=None, code="draining", served_by="", service_class=""),
        record("rejected", ttft=None, code="model_not_found", model="what?", served_by="", service_class=""),
    )
    assert values.of("penstock_requests_refused_total") == 3, "one had reached a replica"
    assert values.of("penstock_requests_refused_total", model_name="m", code="draining") == 1, (
        "as it was asked for"
    )
    assert values.of("penstock_requests_refused_total", model_name="", code="model_not_found") == 1
    assert values.of("penstock_time_to_first_token_seconds_count") == 0
    assert values.of("penstock_e2e_request_latency_seconds_count") == 0


def test_waiting_for_a_failed_attempt_is_not_queueing() -> None:
    phases = [
        Phase("queue", 0.0, 0.02),
        Phase("attempt", 0.02, 5.0, "a", failed=True),
        Phase("queue", 5.0, 5.1),
        Phase("attempt", 5.1, 6.0, "b"),
    ]
    values = counted(record(phases=phases))
    assert values.of("penstock_queue_seconds_count") == 1
    assert values.of("penstock_queue_seconds_sum") == pytest.approx(0.02)
    assert values.of("penstock_phase_seconds_total", phase="queue") == pytest.approx(0.12)


def test_what_the_server_asks_itself_is_billed_and_otherwise_nobodys() -> None:
    values = counted(record(inside=True, prompt_tokens=5, completion_tokens=2))
    assert values.of("penstock_tokens_total", kind="prompt") == 5
    assert values.of("penstock_requests_total") == 0
    assert values.of("penstock_slo_requests_total") == 0


def test_slow_requests_are_counted_by_their_first_cause() -> None:
    values = counted(record(causes=("queued", "retried")), record(causes=("queued",)), record())
    assert values.of("penstock_slow_requests_total", cause="queued") == 2
    assert values.of("penstock_slow_requests_total", cause="retried") is None


@pytest.mark.parametrize(
    ("made", "verdicts"),
    [
        (record(), {"errors": True, "ttft": True}),
        (record(ttft=0.6), {"errors": True, "ttft": False}),
        (record(ttft=0.5), {"errors": True, "ttft": True}),
        (record(completion_tokens=11, ttft=0.5, seconds=1.0), {"errors": True, "ttft": True, "tpot": True}),
        (record(completion_tokens=11, ttft=0.5, seconds=2.0), {"errors": True, "ttft": True, "tpot": False}),
        (record("failed"), {"errors": False, "ttft": False}),
        (record("shed", ttft=None), {"errors": False, "ttft": False}),
        (record("shed", ttft=None, code="queue_full"), {"errors": False, "ttft": False}),
        *((record("shed", ttft=None, code=code), {}) for code in (RATE, TOKENS, CONCURRENCY, QUOTA)),
        (record("rejected", ttft=None), {}),
        (record("aborted", ttft=None, seconds=0.4), {"errors": True, "ttft": True}),
        (record("aborted", ttft=None, seconds=9.0), {"errors": True, "ttft": False}),
        # Whoever gave the answer whole knows when its first token was, and does not say.
        (record(ttft=None, seconds=60.0), {"errors": True}),
        (record(ttft=2.0, service_class="batch"), {"errors": True, "ttft": True}),
        (record(ttft=2.1, service_class="batch", completion_tokens=99), {"errors": True, "ttft": False}),
        (record("shed", ttft=None, code="draining"), {}),
    ],
)
def test_bad_is_what_was_slow_or_failed_or_shed(made: RequestRecord, verdicts: dict[Objective, bool]) -> None:
    assert dict(Promise(ttft=0.5, tpot=0.1).verdicts(made)) == verdicts


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        (record(seconds=9.9), True),
        (record(seconds=10.1), False),
        (record(ttft=None, seconds=10.1), False),
        (record("failed", seconds=1.0), False),
        (record("shed", ttft=None, seconds=0.1, code="queue_full"), False),
        (record("aborted", seconds=9.0), True),
        (record("aborted", seconds=11.0), False),
        (record(seconds=60.0, service_class="batch"), None),
    ],
)
def test_a_whole_answer_is_judged_where_one_is_promised(made: RequestRecord, kept: bool | None) -> None:
    assert dict(Promise(ttft=0.5, e2e=10.0).verdicts(made)).get("e2e") == kept
    assert "e2e" not in dict(Promise(ttft=0.5).verdicts(made))


def test_a_promise_about_whole_answers_is_a_bound_that_is_told() -> None:
    config = GatewayConfig(models=(ModelConfig(name="m", slo=SloConfig(e2e=12.5)), ModelConfig(name="other")))
    values = counted(record(seconds=12.4), record(seconds=12.6), config=config)
    assert values.of("penstock_slo_requests_total", model_name="m", objective="e2e", verdict="bad") == 1
    assert values.of("penstock_slo_bound_seconds", model_name="m", objective="e2e") == 12.5
    assert values.of("penstock_slo_bound_seconds", model_name="other", objective="e2e") is None
    assert values.of("penstock_slo_target_ratio", objective="e2e") == 0.99
    assert values.of("penstock_e2e_request_latency_seconds_bucket", le="12.5") == 1


def test_batch_never_has_to_be_quicker_than_the_others() -> None:
    slo = ObjectivesConfig(ttft=5.0, batch_ttft=3.0)
    assert Promises(GatewayConfig(slo=slo)).of("m").batch_ttft == 5.0
    values = counted(config=GatewayConfig(models=MODELS, slo=ObjectivesConfig(batch_ttft=2.7)))
    assert values.of("penstock_slo_bound_seconds", model_name="other", objective="batch_ttft") == 2.7
    values = counted(record(), config=GatewayConfig(models=MODELS, slo=ObjectivesConfig(batch_ttft=2.7)))
    assert values.of("penstock_time_to_first_token_seconds_bucket", le="2.7") == 1


def test_thirty_tokens_a_second_can_be_read_off() -> None:
    values = counted(
        record(ttft=1.0, seconds=4.0, choices=1, completion_tokens=91),
        record(ttft=1.0, seconds=4.0, choices=1, completion_tokens=90),
    )
    assert values.of("penstock_time_per_output_token_seconds_bucket", le=repr(1 / 30)) == 1


def test_choices_are_computed_side_by_side() -> None:
    four = record(ttft=1.0, seconds=11.0, choices=4, completion_tokens=400)
    assert four.tpot == pytest.approx(10 / 99)
    assert record(ttft=1.0, seconds=11.0, choices=1, completion_tokens=101).tpot == pytest.approx(0.1)
    assert record(ttft=1.0, seconds=11.0, choices=0, completion_tokens=400).tpot is None, "of how many?"
    assert record(ttft=1.0, seconds=11.0, choices=4, completion_tokens=4).tpot is None


def test_whoever_was_refused_before_a_model_was_known_is_counted_and_not_judged() -> None:
    refusals = [record("shed", ttft=None, code="draining", model="", served_by="", service_class="")] * 20
    values = counted(*refusals, record("failed", ttft=None, model="what?", served_by=""))
    assert values.of("penstock_requests_total", model_name="", outcome="shed") == 20
    assert values.of("penstock_slo_requests_total", model_name="") is None
    assert values.of("penstock_slo_requests_total") == 0


def test_each_model_is_judged_by_its_own_promise() -> None:
    values = counted(record(ttft=0.3), record(ttft=0.3, served_by="other"))
    assert values.of("penstock_slo_requests_total", model_name="m", objective="ttft", verdict="bad") == 1
    assert values.of("penstock_slo_requests_total", model_name="other", objective="ttft", verdict="good") == 1
    assert values.of("penstock_slo_bound_seconds", model_name="m", objective="ttft") == 0.123
    assert values.of("penstock_slo_bound_seconds", model_name="other", objective="ttft") == 0.456
    assert values.of("penstock_slo_target_ratio", objective="ttft") == 0.99


def test_failures_are_seen_to_rise_since_counting_begins_at_zero() -> None:
    values = counted()
    assert values.of("penstock_requests_total", model_name="other", outcome="failed") == 0
    assert values.of("penstock_slo_requests_total", model_name="other", verdict="bad") == 0


def test_every_promise_is_a_bound_and_can_be_read_off_exactly() -> None:
    values = counted(record(ttft=0.123), record(ttft=0.1231), record(ttft=0.456))
    bucket = "penstock_time_to_first_token_seconds_bucket"
    assert values.of(bucket, le="0.123") == 1
    assert values.of(bucket, le="0.456") == 3
    assert values.of(bucket, le=str(4 * 0.123)) == 3, "somebody is paged from there on"
    assert values.of("penstock_time_per_output_token_seconds_bucket", le="0.04") == 0
    assert values.of("vllm:time_to_first_token_seconds_bucket", le="0.123") is None, (
        "no engine of ours computed"
    )


def test_a_new_promise_is_a_new_bound_and_counting_begins_again() -> None:
    metrics = Metrics()
    metrics.configure(CONFIG, ["m"])
    listener = RequestMetrics(metrics)
    listener.finished(record(ttft=0.3))
    metrics.configure(GatewayConfig(slo=ObjectivesConfig(ttft=0.29)), ["m"])
    listener.finished(record(ttft=0.28))
    page = metrics.render()
    values = samples(page)
    bucket = "penstock_time_to_first_token_seconds_bucket"
    assert values.of(bucket, le="0.29") == values.of(bucket, le="+Inf") == 1
    assert values.of(bucket, le="0.123") is None
    assert values.of("penstock_requests_total", outcome="ok") == 2, "what has no bounds goes on"
    metrics.configure(GatewayConfig(slo=ObjectivesConfig(ttft=0.29)), ["m"])
    assert samples(metrics.render()).of(bucket, le="0.29") == 1, "nothing has changed"


def test_a_hundred_thousand_tenants_are_a_thousand_and_the_rest() -> None:
    config = GatewayConfig(models=MODELS, tenants=(TenantConfig(name="configured"),))
    metrics = Metrics()
    metrics.configure(config, ["m"])
    listener = RequestMetrics(metrics)
    for number in range(100_000):
        listener.finished(
            record(tenant=f"tenant-{number}", prompt_tokens=1, code=f"code-{number}", outcome="shed")
        )
    listener.finished(record(tenant="configured", prompt_tokens=1))
    page = metrics.render()
    values = samples(page)
    names = {labels["tenant"] for labels, _ in values["penstock_tokens_total"]}
    assert len(names) == 1001
    assert {"tenant-0", "configured", OTHER} <= names
    assert values.of("penstock_tokens_total", kind="prompt") == 100_001, "nothing is lost"
    assert values.of("penstock_tokens_total", kind="prompt", tenant=OTHER) == 100_001 - 1000
    codes = {labels["code"] for labels, _ in values["penstock_requests_refused_total"]}
    assert len(codes) == 1001
    assert len(listener._tenants) == 1001
    assert len(page) < 2_000_000


def test_how_many_are_told_apart_is_the_operators_to_say() -> None:
    config = GatewayConfig(models=MODELS, metrics=MetricsConfig(label_values=2))
    values = counted(*(record(tenant=name, prompt_tokens=1) for name in "abcd"), config=config)
    assert {labels["tenant"] for labels, _ in values["penstock_tokens_total"]} == {"a", "b", OTHER}


def test_a_name_cannot_break_the_page() -> None:
    name = 'x"} 1\npenstock_fake{a="\\'
    values = counted(record(tenant=name, prompt_tokens=3))
    assert values.of("penstock_tokens_total", tenant=name, kind="prompt") == 3
    assert "penstock_fake" not in values
