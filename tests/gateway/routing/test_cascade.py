"""The cascade through the front door: a cheap tier that fails or falls short, and an expert above it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.door import CHAT, Door, behind
from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread
from tests.servers.openai import WORD, Fleet


@pytest.fixture(scope="module")
def expert() -> Iterator[OpenAIServer]:
    with in_a_thread(OpenAIServer("good")) as server:
        yield server


@pytest.fixture(scope="module")
def door(expert: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    fleet = Fleet()
    with in_a_thread(fleet.replica()) as one, in_a_thread(fleet.replica()) as two:
        config = {
            "models": {"cheap": behind(one.url, two.url), "dear": behind(expert.url)},
            "tiers": {
                "small": {"model": "cheap", "price": {"output": 1}},
                "large": {"model": "dear", "price": {"output": 100}},
            },
            # A text of one word said forty times is doubtful too, but not as doubtful as none at all.
            "routing": {
                "target": 0.01,
                "cascade": {"enabled": True, "confidence": 0.02, "hold_tokens": 30},
                "monitor": {"enabled": False},
            },
            "retry": {"backoff": "1ms"},
        }
        running = Door(tmp_path_factory.mktemp("cascade"), config)
        yield running
        running.stop()
        assert "Traceback" not in Path(running._log.name).read_text()


def planned(tokens: int, *faults: str, **fields: Any) -> dict[str, Any]:
    plan = json.dumps({"tokens": tokens, "faults": faults})
    return {"model": "auto", "messages": [{"role": "user", "content": plan}], **fields}


def text(events: list[Any]) -> str:
    *chunks, done = events
    assert done == "[DONE]"
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def test_a_good_enough_answer_is_the_cheap_tiers(door: Door) -> None:
    reply = door.post(CHAT, planned(8))
    assert reply.headers["x-penstock-tier"] == "small", reply.body
    assert reply.json()["usage"]["completion_tokens"] == 8


def test_a_stream_that_broke_while_it_was_held_is_another_replicas_and_said_once(door: Door) -> None:
    events = door.stream(CHAT, planned(40, "half", stream=True))
    assert text(events) == WORD * 40


def test_an_empty_answer_is_asked_for_one_tier_up_and_only_that_one_is_billed(door: Door) -> None:
    before = len(door.usage("--model", "cheap"))
    reply = door.post(CHAT, planned(0))
    assert reply.headers["x-penstock-tier"] == "large", reply.body
    assert reply.json()["choices"][0]["message"]["content"] == "good good good "
    assert text(door.stream(CHAT, planned(0, stream=True))) == "good good good "
    assert door.billed("default", "dear", requests=2)["completion_tokens"] == 6
    assert len(door.usage("--model", "cheap")) <= before + 1


def test_an_empty_answer_is_given_at_the_deadline_where_the_expert_is_slow(
    door: Door, expert: OpenAIServer
) -> None:
    expert.delay = 3.0
    try:
        reply = door.post(CHAT, planned(0), {"x-penstock-deadline-ms": "600"})
    finally:
        expert.delay = 0.0
    assert reply.status == 200, reply.body
    assert reply.headers["x-penstock-tier"] == "small"
    assert reply.json()["choices"][0]["message"]["content"] == ""


def test_an_empty_answer_is_better_than_none_where_the_expert_is_broken(
    door: Door, expert: OpenAIServer
) -> None:
    expert.broken = True
    try:
        reply = door.post(CHAT, planned(0))
    finally:
        expert.broken = False
    assert reply.status == 200, reply.body
    assert reply.headers["x-penstock-tier"] == "small"
    assert reply.json()["choices"][0]["message"]["content"] == ""
