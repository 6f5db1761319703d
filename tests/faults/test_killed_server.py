"""What becomes of requests when a server behind the gateway is killed."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.faults.conftest import Serve
from tests.faults.load import Load, all_healthy, until
from tests.server import Server

REQUESTS = 600


async def test_no_request_is_lost_with_one_of_three_servers(
    serve: Serve, tiny_model: Path, tmp_path: Path
) -> None:
    def start(number: int) -> Server:
        options = ("--served-model-name", "tiny", "--device", "cpu")
        return Server(str(tiny_model), *options, log=tmp_path / str(number), env={"PENSTOCK_THREADS": "1"})

    servers = await asyncio.gather(*(asyncio.to_thread(start, number) for number in range(3)))
    try:
        backends = [{"penstock": server.url} for server in servers]
        models = {"tiny": {"backends": backends, "balance": "least_tokens"}}
        door = await asyncio.to_thread(serve, {"models": models})
        await until(lambda: all_healthy(door))
        bodies = [
            {"prompt": f"{number} of many", "max_tokens": 4 + number % 24, "ignore_eos": True}
            for number in range(REQUESTS)
        ]
        load = Load(door, bodies, at_once=24)
        asking = asyncio.create_task(load.run())
        await until(lambda: len(load.answers) > REQUESTS // 4)
        servers[0].signal(signal.SIGKILL)
        await until(lambda: not all_healthy(door))
        answers = await asking
        assert [answer.status for answer in answers] == [200] * REQUESTS
        for body, answer in zip(bodies, answers, strict=True):
            assert answer.json()["usage"]["completion_tokens"] == body["max_tokens"]
        assert 0 < door.metric("penstock_retries_total") <= 0.2 * REQUESTS
    finally:
        for server in servers:
            server.stop()
