"""Spans of real requests, as a collector gets them: one tree each, with the durations that the client saw."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.gateway.door import CHAT, Door, behind, chat, save_tiny_chat
from tests.server import poll
from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread
from tests.servers.otlp import Collector, values

DELAY = 0.3  # seconds that the good server takes


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collecting:
        yield collecting


@pytest.fixture(scope="module")
def good() -> Iterator[OpenAIServer]:
    with in_a_thread(OpenAIServer("good", delay=DELAY)) as server:
        yield server


def config_of(collector: Collector, broken: OpenAIServer, good: OpenAIServer, folder: Path) -> dict[str, Any]:
    return {
        "models": {
            "good": behind(good.url),
            "tried": behind(broken.url, fallbacks=["good"]),
            "own": {"backends": [{"engine": str(save_tiny_chat(folder / "tiny")), "device": "cpu"}]},
        },
        "health": {"error_requests": 1000},
        "retry": {"attempts": 1},
        "tracing": {"endpoint": collector.url, "service_name": "front"},
    }


@pytest.fixture(scope="module")
def door(
    collector: Collector, broken: OpenAIServer, good: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("traces")
    running = Door(folder, config_of(collector, broken, good, folder))
    yield running
    running.stop()
    assert "Traceback" not in Path(running._log.name).read_text()


class Tree:
    """The spans of the request of this id, checked to be one tree whose parts lie within their parents."""

    def __init__(self, collector: Collector, request: str) -> None:
        def found() -> list[list[Span]]:
            return [
                spans
                for spans in collector.traces().values()
                if any(values(span.attributes).get("penstock.request.id") == request for span in spans)
            ]

        poll(lambda: len(found()) == 1)
        [self.spans] = found()
        ids = {span.span_id: span for span in self.spans}
        assert len(ids) == len(self.spans)
        [self.root] = [span for span in self.spans if span.parent_span_id not in ids]
        for span in self.spans:
            parent = ids.get(span.parent_span_id, span)
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano

    def below(self, parent: Span) -> list[str]:
        children = [span for span in self.spans if span.parent_span_id == parent.span_id]
        return [span.name for span in sorted(children, key=lambda span: span.start_time_unix_nano)]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def seconds(span: Span) -> float:
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9


def asked(door: Door, model: str, request: str, **headers: str) -> float:
    """How long the client waited for the answer."""
    began = time.perf_counter()
    reply = door.post(CHAT, chat("hi", model=model, max_tokens=4), {"X-Request-Id": request, **headers})
    assert reply.status == 200, reply.body
    return time.perf_counter() - began


def test_a_request_that_was_tried_twice_is_one_tree_that_lasts_as_long_as_it_did(
    door: Door, collector: Collector, broken: OpenAIServer, good: OpenAIServer
) -> None:
    parent = "b7ad6b7169203331"
    waited = asked(
        door,
        "tried",
        "twice",
        traceparent=f"00-0af7651916cd43dd8448eb211c80319c-{parent}-01",
        tracestate="vendor=x",
    )
    tree = Tree(collector, "twice")
    poll(lambda: door.metric("penstock_traces_total", outcome="sent") >= 1)
    root = tree.root
    assert root.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert root.parent_span_id.hex() == parent
    assert root.kind == Span.SPAN_KIND_SERVER
    assert root.name == "chat good"
    assert root.trace_state == "vendor=x"
    assert abs(root.start_time_unix_nano / 1e9 + seconds(root) - time.time()) < 30
    assert DELAY <= seconds(root) <= waited
    assert tree.below(root) == ["admission", "queue", "attempt", "admission", "queue", "attempt"]
    failed, answered = tree.named("attempt")
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert answered.status.code == Status.STATUS_CODE_UNSET
    assert DELAY <= seconds(answered) <= seconds(root)
    for server, span in ((broken, failed), (good, answered)):
        [sent] = [r.headers for r in server.requests if r.headers.get("x-request-id") == "twice"]
        assert sent["traceparent"] == f"00-{root.trace_id.hex()}-{span.span_id.hex()}-01"
        assert sent["tracestate"] == "vendor=x"
        assert span.kind == Span.SPAN_KIND_CLIENT
    said = values(root.attributes)
    assert said["gen_ai.usage.output_tokens"] == 4
    assert said["penstock.fallbacks"] == 1
    assert said["http.response.status_code"] == 200
    assert "hi" not in str(list(said.values()))
    assert collector.resources[0]["service.name"] == "front"


def test_an_engine_of_our_own_shows_prefill_and_decode(door: Door, collector: Collector) -> None:
    asked(door, "own", "engine")
    tree = Tree(collector, "engine")
    [attempt] = tree.named("attempt")
    assert tree.below(attempt) == ["queue", "prefill", "decode"]
    assert tree.root.parent_span_id == b""
    parts = sum(seconds(span) for span in tree.spans if span.parent_span_id == attempt.span_id)
    assert parts <= seconds(attempt)
    assert parts > 0.5 * seconds(attempt)


def test_a_callers_no_is_kept_and_passed_on(door: Door, collector: Collector, good: OpenAIServer) -> None:
    trace = "1af7651916cd43dd8448eb211c80319c"
    asked(door, "good", "unwanted", traceparent=f"00-{trace}-b7ad6b7169203331-00")
    asked(door, "good", "wanted")
    Tree(collector, "wanted")  # what came before it would be here too
    assert bytes.fromhex(trace) not in collector.traces()
    [sent] = [r.headers for r in good.requests if r.headers.get("x-request-id") == "unwanted"]
    assert sent["traceparent"].startswith(f"00-{trace}-")
    assert sent["traceparent"].endswith("-00")


def test_a_trace_lasts_nearly_as_long_as_its_client_waits(door: Door, collector: Collector) -> None:
    def missing(turn: int) -> float:
        waited = asked(door, "good", f"waited-{turn}")
        return waited - seconds(Tree(collector, f"waited-{turn}").root)

    assert min(missing(turn) for turn in range(5)) < DELAY / 2  # of a machine that stands still now and then


def test_wrong_requests_and_those_without_a_model_are_traced_too(door: Door, collector: Collector) -> None:
    assert door.post(CHAT, {"model": "nobody"}, {"X-Request-Id": "wrong"}).status == 404
    root = Tree(collector, "wrong").root
    assert values(root.attributes)["error.type"] == "model_not_found"
    assert root.name == "chat"
    assert root.status.code == Status.STATUS_CODE_UNSET


def test_a_stream_says_when_its_first_part_came(door: Door, collector: Collector) -> None:
    with door.streaming(CHAT, chat("hi", model="good"), {"X-Request-Id": "stream"}) as events:
        assert list(events)[-1] == "[DONE]"
    said = values(Tree(collector, "stream").root.attributes)
    assert said["gen_ai.request.stream"] is True
    assert said["gen_ai.response.time_to_first_chunk"] >= DELAY


def test_many_at_once_do_not_mix(door: Door, collector: Collector) -> None:
    names = [f"many-{i}" for i in range(40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: asked(door, "good", name), names))
    traces = {Tree(collector, name).root.trace_id for name in names}
    assert len(traces) == len(names)


def test_traces_end_and_begin_with_the_configuration_and_an_absent_collector_slows_nobody(
    collector: Collector, broken: OpenAIServer, good: OpenAIServer, tmp_path: Path
) -> None:
    with Collector() as gone:
        pass
    config = config_of(gone, broken, good, tmp_path)
    del config["models"]["own"]
    door = Door(tmp_path, config, "--workers", "2")
    try:
        waited = [asked(door, "good", f"lost-{number}") for number in range(20)]
        assert median(waited) < DELAY + 0.5, "half of them waited for something"
        poll(lambda: "Traces cannot be sent" in door.log())
        time.sleep(2.0)
        lines = [line for line in door.log().splitlines() if "Traces cannot be sent" in line]
        assert 1 <= len(lines) <= 2  # of each process at most one
        del config["tracing"]
        door.reload(config)
        poll(lambda: "Read the configuration again: tracing" in door.log())
        asked(door, "good", "untraced")
        config["tracing"] = {"endpoint": collector.url}
        door.reload(config)
        poll(lambda: door.log().count("Read the configuration again: tracing") == 2)
        time.sleep(3.0)  # both processes
        asked(door, "good", "traced")
        Tree(collector, "traced")
        asked(door, "good", "last")  # sent at the end, at the latest
    finally:
        door.stop()
    Tree(collector, "last")
    assert not [s for s in collector.spans if values(s.attributes).get("penstock.request.id") == "untraced"]


def test_who_has_no_key_makes_no_traces_and_the_count_outlives_a_reload(
    good: OpenAIServer, tmp_path: Path
) -> None:
    with Collector() as collector:
        config: dict[str, Any] = {
            "models": {"good": behind(good.url)},
            "tracing": {"endpoint": collector.url},
        }
        door = Door(tmp_path, config)
        try:
            key = door.key("acme")
            poll(lambda: door.get("/v1/models").status == 401)
            flagged = {"traceparent": "00-2af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
            for wrong in ({}, {"Authorization": "Bearer sk-wrong"}):
                for _ in range(3):
                    assert door.post(CHAT, chat("hi", model="good"), {**flagged, **wrong}).status == 401
            asked(door, "good", "known", **key)
            Tree(collector, "known")
            assert len(collector.traces()) == 1
            poll(lambda: door.metric("penstock_traces_total", outcome="sent") == 1)
            config["tracing"]["sample"] = 1.0
            config["tracing"]["trust_caller"] = False
            door.reload(config)
            poll(lambda: "Read the configuration again: tracing" in door.log())
            asked(door, "good", "own", **key, **flagged)
            assert Tree(collector, "own").root.trace_id.hex() not in flagged["traceparent"]
            poll(lambda: door.metric("penstock_traces_total", outcome="sent") == 2)
        finally:
            door.stop()
