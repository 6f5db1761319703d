"""Models that answer for another one that cannot, and requests that they cannot take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.door import CHAT, Door, behind
from tests.gateway.test_bad_callers import LOOK
from tests.servers.gated import OpenAIServer
from tests.servers.http import in_a_thread


@pytest.fixture(scope="module")
def upstream() -> Iterator[OpenAIServer]:
    with in_a_thread(OpenAIServer("good")) as server:
        yield server


@pytest.fixture(scope="module")
def door(
    broken: OpenAIServer, upstream: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Door]:
    first = {"backend": {"vision": True, "model": "first-upstream"}, "price": {"output": 1}, "max_tokens": 50}
    config = {
        "models": {
            "first": behind(broken.url, **first, fallbacks=["short", "second"]),
            "blind": behind(broken.url, backend={"vision": True}, fallbacks=["texts"]),
            "small": behind(broken.url, fallbacks=["short"]),
            "dear": behind(broken.url, price={"output": 1}, fallbacks=["dearer"]),
            "short": behind(upstream.url, prompt_budget=20),
            "texts": {"backends": [{"kind": "tgi", "url": upstream.url}]},
            "second": behind(upstream.url, price={"output": 1000}, max_tokens=10),
            "dearer": behind(upstream.url, price={"output": 1000}),
        },
        "tenants": {"default": {"monthly_budget": 0.5}},
        "health": {"error_requests": 1000},  # the broken one is to be tried again and again
    }
    running = Door(tmp_path_factory.mktemp("fallbacks"), config)
    yield running
    running.stop()
    assert "Traceback" not in Path(running._log.name).read_text()


LONG = [{"role": "user", "content": "many words " * 20}]


def test_the_next_model_answers_at_its_price_under_the_name_that_was_asked_for(door: Door) -> None:
    reply = door.post(CHAT, {"model": "first", "messages": LONG, "max_tokens": 100})
    assert reply.status == 200, reply.body
    assert reply.json()["model"] == "first"
    assert (reply.headers["x-penstock-tier"], reply.headers["x-penstock-model"]) == ("second", "upstream")
    assert float(reply.headers["x-penstock-cost"]) == pytest.approx(10 * 1000e-6)
    assert reply.headers.get_all("x-penstock-max-tokens") == ["10"], "the cap that held in the end, once"
    assert door.billed("default", "second", requests=1)["completion_tokens"] == 10
    assert not door.usage("--model", "first"), "nothing was delivered by it"


@pytest.mark.parametrize(
    ("model", "path", "body"),
    [
        ("blind", "/v1/embeddings", {"input": "hi"}),
        ("blind", CHAT, {"messages": LOOK}),
        ("small", CHAT, {"messages": LONG}),
        ("dear", CHAT, {"messages": LONG, "max_tokens": 800}),
    ],
)
def test_a_request_is_not_wrong_because_the_one_who_steps_in_cannot_take_it(
    door: Door, upstream: OpenAIServer, model: str, path: str, body: dict[str, object]
) -> None:
    before = len(upstream.bodies)
    reply = door.post(path, {"model": model, **body})
    assert reply.status == 502, reply.body
    assert reply.error["code"] == "bad_gateway"
    assert len(upstream.bodies) == before


def test_what_is_wrong_with_a_request_itself_is_said_at_once(door: Door, broken: OpenAIServer) -> None:
    before = len(broken.bodies)
    assert door.post(CHAT, {"model": "short", "messages": LONG}).status == 400
    assert door.post(CHAT, {"model": "texts", "messages": LOOK}).status == 400
    assert len(broken.bodies) == before


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_lacks_messages_is_asked_as_a_chat_from_the_first_one_on(
    door: Door, upstream: OpenAIServer, stream: bool
) -> None:
    body = {"model": "second", "messages": LONG, "max_tokens": 3, "stream": stream}
    for _ in range(2):
        reply = door.post("/v1/messages", body)
        assert reply.status == 200, reply.body
        if stream:
            events = [line for line in reply.body.decode().splitlines() if line.startswith("event: ")]
            assert events[0] == "event: message_start"
            assert events[-1] == "event: message_stop"
        else:
            assert reply.json()["content"] == [{"type": "text", "text": "good good good "}]


def test_asking_for_what_a_server_lacks_does_not_take_it_from_the_others(door: Door) -> None:
    for _ in range(20):
        assert door.post("/v1/rerank", {"model": "second", "query": "a", "documents": ["b"]}).status == 400
    assert door.post(CHAT, {"model": "second", "messages": LONG, "max_tokens": 3}).status == 200
