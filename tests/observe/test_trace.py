"""Trace context as W3C writes it, and whose decision it is what is traced."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace as otel
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.observe.record import Phase, RequestRecord
from penstock.observe.trace import Sampler, Trace, joined, onward

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def record(trace: Trace | None, *phases: Phase) -> RequestRecord:
    return RequestRecord("r", "createChatCompletion", 0.0, 0.0, trace=trace, phases=list(phases))


def sent(lines: bytes) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in lines.decode().split("\r\n") if line)


def test_a_callers_trace_is_joined() -> None:
    trace = joined({b"traceparent": PARENT, b"tracestate": b"a=b"})
    assert trace == Trace(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, 1, b"a=b")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"nonsense",
        PARENT.upper(),
        b"ff" + PARENT[2:],
        PARENT + b"-more",  # nothing follows in version 00
        PARENT[:-1],
        b"00-" + b"0" * 32 + PARENT[35:],
        PARENT[:36] + b"0" * 16 + b"-01",
        b" " + PARENT,
        PARENT + b"\n",
        b"01" + PARENT[2:] + b"-\xff",
    ],
)
def test_what_nobody_could_follow_is_not_joined(header: bytes) -> None:
    assert joined({b"traceparent": header}) is None


def test_later_versions_are_read_as_far_as_they_are_known() -> None:
    assert joined({b"traceparent": b"cc" + PARENT[2:] + b"-what.comes"}) == joined({b"traceparent": PARENT})


def test_state_that_is_none_is_left_out() -> None:
    for state in (b"a=\xff", b"x" * 513, b"a\nb"):
        trace = joined({b"traceparent": PARENT, b"tracestate": state})
        assert trace is not None
        assert trace.state == b""


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**64 - 1), st.integers(0, 255))
def test_what_is_sent_on_is_what_opentelemetry_reads(trace: int, span: int, flags: int) -> None:
    header = b"00-%032x-%016x-%02x" % (trace, span, flags)
    ours = joined({b"traceparent": header})
    context = TraceContextTextMapPropagator().extract({"traceparent": header.decode()})
    theirs = otel.get_current_span(context).get_span_context()
    assert (ours is not None) == theirs.is_valid
    if ours is not None:
        assert (ours.id, ours.parent, ours.flags & 1) == (
            theirs.trace_id,
            theirs.span_id,
            theirs.trace_flags & 1,
        )
        # Without traces of our own it goes on as it came.
        assert sent(onward(record(ours)))["traceparent"][:-2] == header.decode()[:-2]


def test_nothing_is_sent_on_of_no_trace() -> None:
    assert onward(record(None)) == b""


def test_each_attempt_is_the_parent_of_what_its_server_does() -> None:
    trace = Sampler(1.0).begin(joined({b"traceparent": PARENT, b"tracestate": b"a=b"}))
    first, second = Phase("attempt", 1.0, 2.0), Phase("attempt", 2.0, 0.0)
    asked = record(trace, first)
    one = sent(onward(asked))["traceparent"]
    assert sent(onward(asked))["traceparent"] == one  # an attempt of two requests is one span
    asked.phases.append(second)
    two = sent(onward(asked))
    assert one == f"00-{trace.id:032x}-{first.span:016x}-01"
    assert two["traceparent"] == f"00-{trace.id:032x}-{second.span:016x}-01"
    assert two["tracestate"] == "a=b"
    assert len({trace.span, first.span, second.span, trace.parent}) == 4


@pytest.mark.parametrize("flag", [0, 1])
def test_the_caller_decides(flag: int) -> None:
    caller = joined({b"traceparent": PARENT[:-1] + b"%d" % flag})
    trace = Sampler(1.0 - flag).begin(caller)
    assert trace.sampled == bool(flag)
    assert trace.parent == 0xB7AD6B7169203331


def test_a_caller_who_is_not_trusted_decides_nothing() -> None:
    caller = joined({b"traceparent": PARENT, b"tracestate": b"a=b"})
    assert caller is not None
    trace = Sampler(0.0, trusting=False).begin(caller)
    assert not trace.sampled
    assert trace.id != caller.id
    assert (trace.parent, trace.state) == (0, b"")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_others_with_the_same_share_decide_alike(share: float) -> None:
    random.seed(8)
    ours, theirs = Sampler(share), TraceIdRatioBased(share)
    chosen = 0
    for _ in range(2000):
        trace = ours.begin(None)
        decided = theirs.should_sample(None, trace.id, "x").decision
        assert trace.sampled == (decided == Decision.RECORD_AND_SAMPLE)
        chosen += trace.sampled
    assert abs(chosen / 2000 - share) < 0.05


def test_servers_are_told_what_was_not_chosen() -> None:
    trace = Sampler(0.0).begin(None)
    assert sent(onward(record(trace)))["traceparent"].endswith("-00")
    assert not trace.sampled
