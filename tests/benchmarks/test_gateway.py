"""The benchmark of gateways, checked against itself: the load generator straight at the mock upstream."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gateway import load, mock
from benchmarks.gateway.figures import FIGURES, Results, slope
from benchmarks.gateway.processes import Load, Mock, Process

CORE = min(os.sched_getaffinity(0))
CHUNKS_AROUND = 3  # of a stream beside its content: role, finish and usage


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mock]:
    running = Mock(CORE, tmp_path_factory.mktemp("mock"))
    yield running
    running.process.stop()


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    running = Load(CORE, tmp_path_factory.mktemp("load"))
    yield running
    running.process.stop()


def address(upstream: Mock) -> dict[str, Any]:
    return {"host": upstream.host, "port": upstream.ports[0], "model": "mock"}


def test_a_closed_loop_sends_as_many_requests_as_it_is_told(upstream: Mock, generator: Load) -> None:
    job = {"kind": "closed", "target": address(upstream), "connections": 4, "requests": 100}
    answer = generator.run(job)
    assert (answer["answers"], answer["errors"]) == (100, 0)
    assert answer["latency"]["count"] == 100


def test_every_chunk_of_every_stream_is_counted(upstream: Mock, generator: Load) -> None:
    job = {"kind": "closed", "target": address(upstream), "connections": 3, "requests": 9}
    answer = generator.run({**job, "stream": True, "chunks": 40})
    assert (answer["answers"], answer["errors"]) == (9, 0)
    assert answer["chunks"] == 9 * (40 + CHUNKS_AROUND)
    assert answer["ttft"]["count"] == 9


def test_an_open_loop_sends_at_its_rate_and_gets_all_answers(upstream: Mock, generator: Load) -> None:
    job = {"kind": "open", "target": address(upstream), "rate": 200, "seconds": 1.0, "seed": 1}
    answer = generator.run(job)
    assert answer["errors"] == 0
    assert 140 < answer["answers"] < 260  # Poisson: four standard deviations around 200


def test_alternating_asks_each_target_equally_often(upstream: Mock, generator: Load) -> None:
    job = {"kind": "alternate", "targets": [address(upstream)] * 2, "rounds": 3, "block": 5}
    parts = generator.run(job)["targets"]
    assert [part["answers"] for part in parts] == [15, 15]


def test_what_is_refused_is_counted_with_the_reason(generator: Load) -> None:
    target = {"host": "127.0.0.1", "port": 1, "model": "mock"}
    answer = generator.run({"kind": "closed", "target": target, "connections": 2, "requests": 10})
    assert answer["answers"] == 0
    assert answer["errors"] > 0
    assert "could not be made" in answer["first_error"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
async def test_chunks_are_counted_however_the_reads_cut_them(size: int) -> None:
    content = mock.CONTENT[0] * 5 + mock.FINISH + mock.DONE
    assert feed(mock.STREAM_HEAD + mock.ROLE + content, size) == (7, None)


@pytest.mark.parametrize("size", [1, 5, 10_000])
async def test_a_stream_without_its_end_is_an_error(size: int) -> None:
    content = mock.CONTENT[0] * 5 + b"0\r\n\r\n"
    assert feed(mock.STREAM_HEAD + content, size) == (5, "A stream ended without [DONE].")


async def test_an_error_inside_a_stream_is_an_error() -> None:
    failure = mock.chunked(b'data: {"error":{"message":"The engine died."}}\n\n')
    chunks, error = feed(mock.STREAM_HEAD + mock.CONTENT[0] + failure + mock.DONE, 11)
    assert chunks == 2
    assert error is not None
    assert "brought an error" in error


async def test_a_refusal_is_told_with_its_status_and_text() -> None:
    refusal = mock.http(b'{"error":{"message":"Too many."}}', "429 Too Many Requests")
    assert feed(refusal, 10_000) == (0, '429 Too Many Requests: {"error":{"message":"Too many."}}')


def test_streams_have_usage_only_when_it_is_asked_for(upstream: Mock) -> None:
    asked = {"stream": True, "max_tokens": 2}
    plain = events(post(upstream, asked))
    with_usage = events(post(upstream, {**asked, "stream_options": {"include_usage": True}}))
    assert len(with_usage) == len(plain) + 1
    assert not any("usage" in event for event in plain)
    assert with_usage[-1]["choices"] == []
    assert with_usage[-1]["usage"]["completion_tokens"] == 2
    assert with_usage[0]["choices"][0]["delta"]["role"] == "assistant"
    assert with_usage[-2]["choices"][0]["finish_reason"] == "stop"


def test_an_unstreamed_answer_has_text_and_usage(upstream: Mock) -> None:
    answer = json.loads(post(upstream, {}))
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["total_tokens"] == sum(
        answer["usage"][name] for name in ("prompt_tokens", "completion_tokens")
    )


def test_the_processor_time_of_children_is_counted(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    parent = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {burn!r}]); time.sleep(60)"
    process = Process([sys.executable, "-c", parent], cores={CORE}, log=tmp_path / "log")
    try:
        deadline = time.monotonic() + 60
        while process.cpu_seconds() < 0.3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert process.memory() > 2**20
    finally:
        process.stop()
    assert process.popen.poll() is not None


def test_the_slope_of_a_line_is_found_and_noise_around_a_level_is_none() -> None:
    assert slope([(x, 3 + 2 * x) for x in range(10)]) == pytest.approx(2)
    assert slope([(1, 5.0), (2, 6.0), (3, 6.0), (4, 5.0)]) == pytest.approx(0)


def test_a_bar_is_met_from_the_right_side() -> None:
    assert FIGURES["requests_per_cpu"].meets(1000)
    assert not FIGURES["requests_per_cpu"].meets(999)
    assert FIGURES["added_one"].meets(1.2)
    assert not FIGURES["added_one"].meets(1.21)


def test_repeats_come_to_a_median_and_a_range() -> None:
    results = Results()
    for value in (3.0, 1.0, 2.0):
        results.add("start", value)
    assert results.summary("start") == {"median": 2.0, "min": 1.0, "max": 3.0}
    assert results.summary("memory") is None


class _Wire(asyncio.Transport):
    """The writing side of a connection, which nobody reads."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def close(self) -> None:
        pass


def feed(answer: bytes, size: int) -> tuple[int, str | None]:
    """The chunks and the error that a client sees in a stream which comes in reads of `size` bytes."""
    target = load.Target({"stream": True}, {"host": "127.0.0.1", "port": 1, "model": "mock"})
    tally = load.Tally()
    ended: list[load.Connection] = []
    connection = load.Connection(target, tally, ended.append)
    connection.connection_made(_Wire())
    connection.ask()
    for start in range(0, len(answer), size):
        assert not ended
        connection.data_received(answer[start : start + size])
    assert len(ended) == 1
    return tally.chunks, tally.first_error


def post(upstream: Mock, body: dict[str, Any]) -> bytes:
    connection = http.client.HTTPConnection(upstream.host, upstream.ports[1], timeout=30)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        return connection.getresponse().read()
    finally:
        connection.close()


def events(stream: bytes) -> list[dict[str, Any]]:
    *parts, done, rest = stream.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(part.removeprefix(b"data: ")) for part in parts]
