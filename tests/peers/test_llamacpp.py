"""A real llama.cpp as a backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from penstock.gateway.backends import BackendError
from penstock.gateway.backends.relay import RelayBackend
from penstock.protocol.errors import HTTPError
from tests.gateway.backends.asking import Got, ask, backend_of
from tests.peers.conftest import SLOTS, PeerServer

pytestmark = pytest.mark.peers

SAY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Count from one to five in words."}],
    "max_tokens": 24,
    "temperature": 0,
    "seed": 1,
}


@pytest.fixture
async def backend(llamacpp: PeerServer) -> AsyncIterator[RelayBackend]:
    backend = backend_of(llamacpp.url, "llamacpp", model="llama-of-cpp")
    await backend.start()
    yield backend
    await backend.close()


async def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 (what is watched is no event)
            await asyncio.sleep(0.05)


async def test_a_chat_is_the_same_streamed_and_not_and_billed_alike(backend: RelayBackend) -> None:
    whole = await ask(backend, SAY)
    answer = whole.json()
    assert answer["model"] == "mine"
    assert "llama-of-cpp" not in whole.body.decode()
    assert answer["usage"]["completion_tokens"] == whole.delivered.completion > 0

    stream = await ask(backend, {**SAY, "stream": True, "stream_options": {"include_usage": True}})
    assert stream.text == answer["choices"][0]["message"]["content"]
    assert stream.events[-1] == "[DONE]"
    assert b"llama-of-cpp" not in stream.body
    assert stream.events[-2]["usage"]["completion_tokens"] == stream.delivered.completion
    assert (stream.delivered.prompt, stream.delivered.completion) == (
        whole.delivered.prompt,
        whole.delivered.completion,
    )


async def test_a_client_that_asks_for_no_usage_sees_none(backend: RelayBackend) -> None:
    stream = await ask(backend, {**SAY, "stream": True})
    assert stream.text
    assert all("usage" not in event for event in stream.events[:-1])
    assert stream.delivered.completion > 0


async def test_a_limit_by_the_newer_name_is_obeyed(backend: RelayBackend) -> None:
    body = {name: value for name, value in SAY.items() if name != "max_tokens"}
    got = await ask(backend, {**body, "max_completion_tokens": 3})
    assert got.delivered.completion == 3


async def test_text_is_completed(backend: RelayBackend) -> None:
    got = await ask(backend, {"prompt": "One, two,", "max_tokens": 4, "temperature": 0}, "createCompletion")
    assert got.json()["choices"][0]["text"]
    assert got.delivered.completion == 4


@pytest.mark.parametrize(
    ("asks", "body", "last"),
    [
        ("createMessage", {"messages": SAY["messages"], "max_tokens": 8}, "message_stop"),
        ("createResponse", {"input": "Say hello.", "max_output_tokens": 8}, "response.completed"),
    ],
)
async def test_messages_and_responses_are_relayed(
    backend: RelayBackend, asks: str, body: dict[str, Any], last: str
) -> None:
    whole = await ask(backend, body, asks)
    assert whole.json()["model"] == "mine"
    assert whole.delivered.completion > 0
    stream = await ask(backend, {**body, "stream": True}, asks)
    assert stream.events[-1]["type"] == last
    assert b"llama-of-cpp" not in stream.body
    assert stream.delivered.prompt > 0
    assert stream.delivered.completion > 0


async def test_its_refusals_come_in_our_shape(backend: RelayBackend) -> None:
    with pytest.raises(HTTPError) as caught:
        await ask(backend, {**SAY, "messages": [{"role": "user", "content": "word " * 5000}]})
    assert not isinstance(caught.value, BackendError)
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    with pytest.raises(HTTPError) as caught:
        await ask(backend, {**SAY, "messages": "not a list"})
    assert (caught.value.status, isinstance(caught.value, BackendError)) == (400, False)


async def test_what_it_was_not_started_for_is_not_the_clients_fault(backend: RelayBackend) -> None:
    with pytest.raises(BackendError):
        await ask(backend, {"input": "x"}, "createEmbedding")


async def test_it_is_healthy_and_tells_its_load(backend: RelayBackend) -> None:
    await until(lambda: backend.health.state(time.monotonic()) == "healthy")
    long = {**SAY, "max_tokens": 400, "stream": True, "ignore_eos": True}
    gots = [Got() for _ in range(SLOTS + 1)]
    tasks = [asyncio.create_task(ask(backend, long, got=got)) for got in gots]
    await until(lambda: (load := backend.load()) is not None and (load.running, load.waiting) == (SLOTS, 1))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_client_that_hangs_up_frees_its_slot(backend: RelayBackend) -> None:
    got = Got()
    body = {**SAY, "max_tokens": 1900, "stream": True, "ignore_eos": True}
    task = asyncio.create_task(ask(backend, body, got=got))
    await got.reached(5)
    await until(lambda: (load := backend.load()) is not None and load.running >= 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert 0 < got.delivered.completion < 1900
    await until(lambda: (load := backend.load()) is not None and load.running == 0)


async def test_one_that_ends_is_out_at_once(llamacpp: PeerServer, backend: RelayBackend) -> None:
    """The last test of this file: it takes the server away."""
    await until(lambda: backend.health.state(time.monotonic()) == "healthy")
    llamacpp.process.terminate()
    await asyncio.to_thread(llamacpp.process.wait, 30)  # while connections hear of its end
    with pytest.raises(BackendError):
        await ask(backend, SAY)
    assert backend.health.state(time.monotonic()) == "dead"
