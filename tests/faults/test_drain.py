"""How a server with several engines and front processes stops."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.faults.client import Answer, Client
from tests.faults.conftest import Serve
from tests.faults.load import TEXT, until
from tests.faults.processes import exists

STREAMS = 6


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_stop_signal_finishes_streams_refuses_the_rest_and_leaves_nothing(
    engines: Serve, workers: int
) -> None:
    server = engines(2, workers=workers, drain_seconds=60)
    family = [server.process.pid, *server.engine_pids()]
    assert len(family) == (3 if workers == 1 else 5)
    # Each on a connection of its own, which the processes share out among themselves.
    long = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    refused: list[Answer] = []
    async with Client(server.host, server.port) as client:
        streams = [asyncio.create_task(client.post(TEXT, long)) for _ in range(STREAMS)]
        await until(lambda: server.metric("vllm:num_requests_running") == STREAMS)
        server.signal(signal.SIGTERM)
        await until(lambda: server.get("/ready").status == 503)
        if workers > 1:  # each is told by itself, and takes requests until it has heard
            await until(lambda: server.log().count("Taking no new requests") == workers)
        while not any(stream.done() for stream in streams):
            refused.append(await client.post(TEXT, {"prompt": "new"}))
            await asyncio.sleep(0.05)
        answers = await asyncio.gather(*streams)
    for answer in answers:
        *_, last = answer.events()
        assert last["choices"][0]["finish_reason"] == "length"
        assert answer.done
    assert refused
    assert {answer.status for answer in refused} == {503}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert await asyncio.to_thread(server.wait) == 0
    await until(lambda: not any(map(exists, family[1:])))
    assert "Traceback" not in server.log()
