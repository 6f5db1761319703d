"""Which requests are called slow, and what the log says of them."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from penstock.config import GatewayConfig, ModelConfig
from penstock.config.observing import ObjectivesConfig, SlowConfig
from penstock.config.sections import SloConfig
from penstock.logs import JsonLines, about, request_id
from penstock.observe.record import Phase, RequestRecord
from penstock.observe.slow_log import KNOWN, LINES, STRETCH_SECONDS, SlowRequests, logger


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def request(seconds: float = 0.1, ttft: float | None = 0.05, id: str = "r", **fields: Any) -> RequestRecord:
    fields = {"served_by": "m", "service_class": "standard", "tenant": "acme", **fields}
    made = RequestRecord(id, "createChatCompletion", 100.0, 0.0, **fields)
    made.ended = 100.0 + max(seconds, ttft or 0.0)
    made.phases.append(Phase("queue", 100.0, made.ended))
    if ttft is not None:
        made.first_token = 100.0 + ttft
    return made


def slow(**fields: Any) -> SlowRequests:
    return SlowRequests(GatewayConfig(**fields), Clock())


def judged(listener: SlowRequests, *records: RequestRecord) -> list[bool]:
    for record in records:
        listener.finished(record)
    return [bool(record.causes) for record in records]


def test_a_first_token_after_what_is_promised_is_slow() -> None:
    listener = slow(slo=ObjectivesConfig(ttft=0.5))
    assert judged(listener, request(ttft=0.5), request(ttft=0.51), request()) == [False, True, False]


def test_a_models_own_promise_and_then_the_threshold_go_before_everybodys() -> None:
    models = (ModelConfig(name="m", slo=SloConfig(ttft=0.2)),)
    assert judged(slow(models=models), request(ttft=0.3), request(ttft=0.1)) == [True, False]
    listener = slow(models=models, slow=SlowConfig(ttft=2.0))
    assert judged(listener, request(1.5, ttft=1.0), request(3.0, ttft=2.1)) == [False, True]


def test_ten_times_the_median_is_slow_once_there_is_one() -> None:
    listener = slow()
    assert judged(listener, request(60.0)) == [False]
    judged(listener, *[request(1.0) for _ in range(10 * KNOWN)])
    assert judged(listener, request(5.0), request(20.0)) == [False, True]


def test_what_is_over_before_a_first_token_is_due_is_not_slow() -> None:
    listener = slow(slo=ObjectivesConfig(ttft=0.5))
    judged(listener, *[request(0.001, ttft=0.001) for _ in range(10 * KNOWN)])
    assert judged(listener, request(0.4)) == [False]


def test_answers_from_the_cache_say_nothing_of_what_is_usual() -> None:
    listener = slow()
    judged(listener, *[request(1.0) for _ in range(10 * KNOWN)])
    judged(listener, *[request(0.01, ttft=0.01, cache="hit") for _ in range(10 * KNOWN)])
    assert judged(listener, request(8.0)) == [False]


def test_a_set_limit_holds_from_the_first_request_on() -> None:
    assert judged(slow(slow=SlowConfig(e2e=3.0)), request(2.9), request(3.1)) == [False, True]


def test_who_waited_in_vain_was_slow_and_who_was_wrong_was_not() -> None:
    listener = slow()
    shed = request(30.0, None, outcome="shed")
    left = request(5.0, None, outcome="aborted")
    wrong = request(9.0, None, outcome="rejected")
    at_once = request(0.001, None, outcome="shed")
    assert judged(listener, shed, left, wrong, at_once) == [True, True, False, False]
    assert shed.causes == ("queued",)


def test_a_whole_answer_whose_first_token_nobody_saw_is_judged_by_its_end_only() -> None:
    assert judged(slow(), request(5.0, None)) == [False]


def test_batch_requests_may_wait_longer_but_not_for_ever() -> None:
    listener = slow(slow=SlowConfig(e2e=60.0))
    patient = request(50.0, 1.9, service_class="batch")
    late, long = request(50.0, 2.1, service_class="batch"), request(70.0, 1.9, service_class="batch")
    assert judged(listener, patient, late, long) == [False, True, True]
    patient = request(50.0, 1.9, service_class="batch")
    assert judged(slow(slo=ObjectivesConfig(batch_ttft=1.5)), patient) == [True]
    patient = request(5.0, 4.0, service_class="batch")
    assert judged(slow(slow=SlowConfig(ttft=4.5)), patient) == [False], "no less than the others"


def test_a_whole_answer_after_what_its_model_promises_is_slow() -> None:
    models = (ModelConfig(name="m", slo=SloConfig(e2e=3.0)),)
    assert judged(slow(models=models), request(2.9), request(3.1)) == [False, True]
    assert judged(slow(models=models, slow=SlowConfig(e2e=5.0)), request(3.1), request(5.1)) == [False, True]


def test_what_the_server_asks_of_itself_is_not_looked_at() -> None:
    assert judged(slow(), request(100.0, 90.0, inside=True)) == [False]


def test_the_line_has_the_id_the_times_and_the_causes(caplog: pytest.LogCaptureFixture) -> None:
    judged(slow(), request(3.0, 2.0, id="abc", prompt_tokens=10, cached_tokens=4, completion_tokens=7))
    [line] = caplog.records
    assert (line.name, line.levelno) == ("penstock.slow", logging.WARNING)
    assert line.getMessage() == (
        "Slow request abc: 3.000 s, first token after 2.000 s; queued 2.000 s (createChatCompletion by m, "
        "tenant acme, class standard, outcome ok, 4 of 10 prompt tokens cached, 7 tokens out)."
    )
    assert line.fields["causes"] == {"queued": 2.0}  # type: ignore[attr-defined]
    assert line.fields["id"] == "abc"  # type: ignore[attr-defined]


def test_without_the_log_causes_are_named_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    assert judged(slow(slow=SlowConfig(log=False)), request(3.0, 2.0)) == [True]
    assert not caplog.records


def test_a_flood_is_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    listener = SlowRequests(GatewayConfig(), clock)
    judged(listener, *[request(3.0, 2.0) for _ in range(LINES + 7)])
    assert len(caplog.records) == LINES
    clock.now += STRETCH_SECONDS
    listener.tick()  # whether anybody comes or not
    assert caplog.records[-1].getMessage() == "7 further slow requests in these 10 s: queued 7."
    listener.tick()
    judged(listener, request(), request(3.0, 2.0))
    assert len(caplog.records) == LINES + 2


def test_a_line_belongs_to_its_request_whichever_is_being_worked_on() -> None:
    told: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(json.loads(JsonLines().format(record))["request_id"])

    handler = Listening()
    logger.addHandler(handler)
    try:
        with about("another"):
            judged(slow(), request(3.0, 2.0, id="mine"))
            assert request_id.get() == "another"
    finally:
        logger.removeHandler(handler)
    assert told == ["mine"]


def test_changed_settings_hold_for_the_next_request() -> None:
    listener = slow()
    assert judged(listener, request(ttft=0.6)) == [True]
    listener.configure(GatewayConfig(slow=SlowConfig(ttft=1.0)))
    assert judged(listener, request(ttft=0.6)) == [False]
