"""The slow-request log of a real server: each cause made on purpose, and named."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.door import CHAT, Door, behind
from tests.server import poll
from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread
from tests.servers.openai import Fleet

SECRET = "the-blue-heron-at-midnight"


def told(door: Door, id: str) -> dict[str, Any]:
    """What the log says of this request."""
    found: list[dict[str, Any]] = []

    def written() -> bool:
        lines = [json.loads(line) for line in door.log().splitlines() if '"penstock.slow"' in line]
        found[:] = [line for line in lines if line.get("id") == id]
        return bool(found)

    poll(written, seconds=10)
    [line] = found
    assert id in line["message"]
    return line


def named(door: Door, id: str) -> list[str]:
    return list(told(door, id)["causes"])


def ask(door: Door, id: str, model: str, content: str = "hi", **fields: Any) -> int:
    body = {"model": model, "messages": [{"role": "user", "content": content}], **fields}
    return door.post(CHAT, body, {"x-request-id": id}).status


# ------------------------------------------------------------ servers of others


@pytest.fixture(scope="module")
def gated() -> Iterator[OpenAIServer]:
    with in_a_thread(OpenAIServer()) as server:
        yield server


@pytest.fixture(scope="module")
def door(gated: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    fleet = Fleet(tokens_per_chunk=50_000)
    with (
        in_a_thread(OpenAIServer(delay=0.5)) as slow,
        in_a_thread(fleet.replica()) as one,
        in_a_thread(fleet.replica()) as two,
    ):
        config = {
            "models": {
                "slow": behind(slow.url),
                "narrow": behind(gated.url, backend={"max_concurrent": 1}),
                "flaky": behind(one.url, two.url),
            },
            "retry": {"backoff": "1s", "max_backoff": "1s"},
            "slow": {"ttft": "200ms", "e2e": "300ms"},
            "log_format": "json",
        }
        running = Door(tmp_path_factory.mktemp("slow"), config)
        yield running
        running.stop()


def test_a_server_that_takes_its_time_is_a_slow_replica(door: Door) -> None:
    assert ask(door, "whole", "slow", SECRET) == 200
    assert ask(door, "stream", "slow", SECRET, stream=True) == 200
    line = told(door, "stream")
    assert list(line["causes"]) == ["slow replica"]
    assert named(door, "whole")[0] == "slow replica"
    assert line["seconds"] >= line["ttft"] >= 0.5
    assert line["level"] == "warning"
    assert (line["model"], line["tenant"], line["class"]) == ("slow", "default", "standard")
    assert SECRET not in door.log()
    assert door.metric("penstock_slow_requests_total", cause="slow replica") == 2


def test_who_waits_for_a_place_was_queued(door: Door, gated: OpenAIServer) -> None:
    first = threading.Thread(target=ask, args=(door, "first", "narrow", "wait"))
    first.start()
    poll(lambda: gated.running == 1)
    second = threading.Thread(target=ask, args=(door, "second", "narrow"))
    second.start()
    time.sleep(0.6)
    gated.open()
    first.join()
    second.join()
    assert named(door, "second") == ["queued"]


def test_a_failure_and_the_pause_after_it_are_retries(door: Door) -> None:
    for number in range(20):  # the pause is drawn: sooner or later it is long
        id = f"retried-{number}"
        plan = json.dumps({"tokens": 2, "faults": ["500"]})
        began = time.monotonic()
        assert ask(door, id, "flaky", plan) == 200
        if time.monotonic() - began > 0.4 and named(door, id) == ["retried"]:
            return
    raise AssertionError("none was slow for that reason")


def test_a_client_that_does_not_read_is_slow_itself(door: Door) -> None:
    content = json.dumps({"tokens": 100 * 50_000})  # 10 MB: more than sockets and buffers take
    body = {"model": "flaky", "messages": [{"role": "user", "content": content}], "stream": True}
    connection = http.client.HTTPConnection(door.host, door.port, timeout=60)
    with closing(connection):
        headers = {"content-type": "application/json", "x-request-id": "sleeper"}
        connection.request("POST", CHAT, json.dumps(body), headers)
        response = connection.getresponse()
        response.read(10)
        time.sleep(3.0)
        response.read()
    line = told(door, "sleeper")
    assert next(iter(line["causes"])) == "slow client", line
    assert line["causes"]["slow client"] > 1.5


def test_what_is_not_slow_is_not_told(door: Door, gated: OpenAIServer) -> None:
    gated.open()
    assert ask(door, "quick", "narrow") == 200
    assert ask(door, "wrong", "nonsense") == 404
    assert ask(door, "again", "slow") == 200
    named(door, "again")
    assert '"quick"' not in door.log()
    assert '"wrong"' not in door.log()


# ------------------------------------------------------------ an engine of ours


@pytest.fixture(scope="module")
def engine(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    config = {
        "model": str(default_model),
        "served_model_name": "m",
        "max_running": 1,
        "slow": {"ttft": "150ms"},
        "log_format": "json",
    }
    running = Door(tmp_path_factory.mktemp("slow_engine"), config)
    yield running
    running.stop()


def words(seed: int, count: int) -> str:
    return " ".join(f"{(seed * 7919 + number * 104_729) % 10_007}" for number in range(count))


def test_a_long_prompt_is_a_long_prefill_until_such_prompts_are_usually_cached(engine: Door) -> None:
    long = words(1, 80)
    assert ask(engine, "long", "m", long, max_tokens=1) == 200
    assert named(engine, "long") == ["long prefill"]
    for number in range(8):
        assert ask(engine, f"warm-{number}", "m", long, max_tokens=1) == 200
    assert ask(engine, "cold", "m", words(2, 80), max_tokens=1) == 200
    line = told(engine, "cold")
    assert list(line["causes"]) == ["cold cache"]
    assert line["cached_tokens"] < line["prompt_tokens"] / 2


def test_waiting_in_the_engine_is_waiting(engine: Door) -> None:
    fields = {"max_tokens": 200, "ignore_eos": True}
    first = threading.Thread(target=ask, args=(engine, "before", "m"), kwargs=fields)
    first.start()
    poll(lambda: engine.metric("vllm:num_requests_running") == 1)
    ask(engine, "behind", "m", "and you?", max_tokens=2)
    first.join()
    assert named(engine, "behind")[0] == "queued"


def test_who_was_set_back_for_want_of_memory_was_preempted(default_model: Path, tmp_path: Path) -> None:
    config = {
        "model": str(default_model),
        "served_model_name": "m",
        "max_running": 2,
        "max_model_len": 256,
        "kv_cache_memory": "8M",  # less than two answers of the length below
        "slow": {"e2e": "500ms"},
        "log_format": "json",
    }
    door = Door(tmp_path, config)
    try:
        fields = {"max_tokens": 200, "ignore_eos": True}
        asking = [
            threading.Thread(target=ask, args=(door, id, "m", words(number, 5)), kwargs=fields)
            for number, id in enumerate(("one", "two"))
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert door.metric("vllm:num_preemptions_total") > 0
        back = next(line for line in (told(door, "one"), told(door, "two")) if line["preemptions"])
        assert next(iter(back["causes"])) == "preempted", back
        assert sum(told(door, id)["preemptions"] for id in ("one", "two")) == door.metric(
            "vllm:num_preemptions_total"
        )
    finally:
        door.stop()
