"""The spans of one request form one tree, as long as what they are of."""

from __future__ import annotations

from typing import Any

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes

from penstock.observe import spans as names
from penstock.observe.record import Phase, RequestRecord
from penstock.observe.spans import Span, spans_of
from penstock.observe.trace import Trace

WALL = 1_800_000_000.0
TRACE = Trace(7, parent=5, flags=1, span=6)


def record(**given: Any) -> RequestRecord:
    fields = {"trace": TRACE, "ended": 12.0, "status": 200, **given}
    return RequestRecord("req-1", "createChatCompletion", 10.0, WALL, **fields)


def tree(spans: list[Span]) -> dict[str, list[str]]:
    """Names of spans, by the names of their parents."""
    by_id = {span.id: span.name for span in spans}
    below: dict[str, list[str]] = {}
    for span in spans:
        below.setdefault(by_id.get(span.parent, "nobody"), []).append(span.name)
    return below


def test_phases_lie_below_the_request_and_an_attempts_below_it() -> None:
    phases = [
        Phase("admission", 10.0, 10.1),
        Phase("route", 10.1, 10.2, "expert"),
        Phase("cache", 10.2, 10.3, "miss"),
        Phase("queue", 10.3, 10.5),
        Phase("attempt", 10.5, 10.7, "a", failed=True),
        Phase("attempt", 10.7, 11.9, "b", span=99),
        Phase("queue", 10.7, 10.8, "engine"),
        Phase("prefill", 10.8, 11.0),
        Phase("decode", 11.0, 11.9),
    ]
    spans = spans_of(record(phases=phases), TRACE)
    assert tree(spans) == {
        "nobody": ["chat"],
        "chat": ["admission", "route", "cache", "queue", "attempt", "attempt"],
        "attempt": ["queue", "prefill", "decode"],
    }
    whole, *rest = spans
    assert (whole.id, whole.parent, whole.kind, whole.remote) == (6, 5, "server", True)
    assert whole.start == round(WALL * 1e9)
    assert len({span.id for span in spans}) == len(spans)
    for span, phase in zip(rest, phases, strict=True):
        assert abs(span.start - whole.start - (phase.start - 10.0) * 1e9) <= 1
        assert abs(span.end - span.start - phase.seconds * 1e9) <= 1
        assert whole.start <= span.start <= span.end <= whole.end
    failed, answered = rest[4], rest[5]
    assert (failed.error, failed.kind, failed.attributes) == (True, "internal", {"penstock.replica": "a"})
    assert (answered.id, answered.error, answered.kind) == (99, False, "client")
    assert {span.parent for span in rest[6:]} == {99}


def test_the_request_says_what_it_came_to() -> None:
    [span] = spans_of(
        record(
            model="auto", served_by="big", tier="expert", tenant="acme", stream=True, first_token=10.5,
            prompt_tokens=7, cached_tokens=4, completion_tokens=3, dollars=0.25, retries=1, cache="miss",
            causes=("queued", "long prefill"),
        ),
        TRACE,
    )  # fmt: skip
    assert span.name == "chat big"
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "penstock",
        "gen_ai.request.model": "auto",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "big",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.time_to_first_chunk": 0.5,
        "http.response.status_code": 200,
        "penstock.request.id": "req-1",
        "penstock.outcome": "ok",
        "penstock.tenant": "acme",
        "penstock.tier": "expert",
        "penstock.cache": "miss",
        "penstock.cost": 0.25,
        "penstock.retries": 1,
        "penstock.slow": "queued, long prefill",
    }


def test_names_are_those_of_the_conventions() -> None:
    known = {
        value
        for module in (gen_ai_attributes, http_attributes, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    assert len(ours) >= 11
    assert ours <= known


def test_a_model_that_a_client_made_up_names_no_span() -> None:
    [span] = spans_of(record(model="x" * 128, status=404, code="model_not_found", outcome="rejected"), TRACE)
    assert span.name == "chat"
    assert span.attributes["error.type"] == "model_not_found"
    assert not span.error  # the client's mistake


def test_failures_and_refusals_are_errors_but_limits_and_clients_that_left_are_not() -> None:
    def error(outcome: Any, status: int) -> bool:
        return spans_of(record(outcome=outcome, status=status), TRACE)[0].error

    assert error("failed", 502)
    assert error("failed", 200)  # in the middle of a stream
    assert error("shed", 503)
    assert not error("shed", 429)
    assert not error("aborted", 499)
    assert not error("rejected", 400)


def test_a_clock_that_is_set_meanwhile_changes_no_duration() -> None:
    """Nothing is taken from the wall clock but the arrival; a phase never ends before it began."""
    spans = spans_of(record(ended=0.0, phases=[Phase("queue", 11.0, 10.5)]), TRACE)
    assert all(span.end >= span.start for span in spans)
