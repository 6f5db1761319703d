"""What becomes of requests when a server behind the gateway hangs."""

from __future__ import annotations

import asyncio

from tests.faults.client import Client
from tests.faults.conftest import Serve
from tests.faults.load import all_healthy, until
from tests.servers.http import LocalServer, Reply, Request, answer

CHAT = "/v1/chat/completions"
BURST = 40  # requests at once, half of them to each server
WHOLE = {
    "object": "chat.completion",
    "model": "chat",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "w"}, "finish_reason": "stop"}],
}


async def test_what_a_frozen_server_has_not_begun_is_answered_elsewhere_without_a_budget(
    serve: Serve,
) -> None:
    """A burst at once, nothing saved up for retries: still nobody suffers for the one that hangs."""
    awake = asyncio.Event()
    came = 0

    async def hangs(request: Request) -> Reply:
        """Answers probes until its half of the burst has come, however long that takes; then nothing."""
        nonlocal came
        came += request.path == CHAT
        if request.path == CHAT or came == BURST // 2:
            await awake.wait()
        return answer(WHOLE)

    async def answers(request: Request) -> Reply:
        return answer(WHOLE)

    async with LocalServer(hangs) as first, LocalServer(answers) as second:
        models = {
            "chat": {"backends": [{"vllm": each.url} for each in (first, second)], "balance": "round_robin"}
        }
        health = {"probe_every": "300ms", "probe_timeout": "700ms"}
        config = {"models": models, "health": health, "retry": {"budget": 0}}
        server = await asyncio.to_thread(serve, config)
        await until(lambda: all_healthy(server))
        body = {"model": "chat", "messages": [{"role": "user", "content": "now"}]}
        async with Client(server.host, server.port) as client:
            replies = await asyncio.gather(*(client.post(CHAT, body) for _ in range(BURST)))
            assert [reply.status for reply in replies] == [200] * BURST
            assert not all_healthy(server)
            awake.set()
            await until(lambda: all_healthy(server))
        await asyncio.to_thread(server.stop)
    assert sum(request.path == CHAT for request in first.requests) == BURST // 2
