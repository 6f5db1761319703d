"""When all replicas fail, or a request is their end, there is not more trouble than need be."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.faults.client import Client
from tests.faults.conftest import Serve
from tests.server import Server
from tests.servers.http import HangUp, LocalServer, Reply, Request, answer
from tests.servers.openai import Fleet

CHAT = "/v1/chat/completions"
FIRST_RETRIES = 10  # allowed before any request has earned one


def chat(content: Any) -> dict[str, Any]:
    return {"model": "chat", "messages": [{"role": "user", "content": json.dumps(content)}]}


@contextlib.asynccontextmanager
async def behind(serve: Serve, replicas: list[LocalServer], **config: Any) -> AsyncIterator[Server]:
    async with contextlib.AsyncExitStack() as stack:
        backends = [{"vllm": (await stack.enter_async_context(replica)).url} for replica in replicas]
        models = {"chat": {"backends": backends, "balance": "round_robin"}}
        server = await asyncio.to_thread(serve, {"models": models, **config})
        try:
            yield server
        finally:
            await asyncio.to_thread(server.stop)


async def test_replicas_that_all_fail_get_a_fifth_more_requests_at_most(serve: Serve) -> None:
    fleet, statuses = Fleet(), Counter[int]()
    requests = 800
    # Nobody is taken out for failing: the retries alone are on trial.
    rules = {"health": {"error_requests": 1_000_000}, "retry": {"backoff": "2ms"}}
    async with behind(serve, [fleet.replica() for _ in range(3)], **rules) as server:
        turns = iter(range(requests))

        async def work(client: Client) -> None:
            for turn in turns:
                fault = ("500", "503", "silent", "nonsense", "half")[turn % 5]
                body = {**chat({"tokens": 4, "faults": [fault] * 50}), "stream": turn % 2 == 0}
                statuses[(await client.post(CHAT, body, {"x-request-id": f"{turn}"})).status] += 1

        async with Client(server.host, server.port) as client:
            await asyncio.gather(*(work(client) for _ in range(24)))
    streams_that_begin = statuses.pop(200)  # those that break off later
    assert streams_that_begin == requests / 10
    assert set(statuses) == {502, 503}
    tried = fleet.tries.total()
    assert 1.1 * requests < tried <= 1.2 * requests + FIRST_RETRIES


async def test_failing_replicas_are_soon_left_alone(serve: Serve) -> None:
    fleet = Fleet()
    replicas = [fleet.replica() for _ in range(3)]
    async with behind(serve, replicas) as server, Client(server.host, server.port) as client:
        for turn in range(200):
            reply = await client.post(CHAT, chat({"faults": ["500"] * 50}), {"x-request-id": f"{turn}"})
            assert reply.status in (502, 503)
    assert fleet.tries.total() < 100


@pytest.mark.parametrize("idle", [0.0, 1.0])
async def test_a_request_that_ends_servers_ends_two_at_most(serve: Serve, idle: float) -> None:
    """Also over connections that were idle, where a reset may mean no more than their end."""
    ended: list[LocalServer] = []

    def mortal() -> LocalServer:
        async def reply(request: Request) -> Reply:
            if b"deadly" in request.body:
                ended.append(server)
                server.refuse()
                raise HangUp
            if request.method == "GET":
                return answer({})
            choice = {"index": 0, "message": {"role": "assistant", "content": "w"}, "finish_reason": "stop"}
            return answer({"object": "chat.completion", "model": "chat", "choices": [choice]})

        server = LocalServer(reply)
        return server

    replicas = [mortal() for _ in range(4)]
    async with behind(serve, replicas) as server, Client(server.host, server.port) as client:
        for _ in range(12):
            assert (await client.post(CHAT, chat("fine"))).status == 200
        await asyncio.sleep(idle)
        assert (await client.post(CHAT, chat("deadly"))).status in (502, 503)
        assert len(ended) == 2
        for _ in range(12):
            assert (await client.post(CHAT, chat("fine"))).status == 200
