"""What becomes of requests when an engine is killed."""

from __future__ import annotations

import asyncio
import os
import signal

from tests.faults.client import Client
from tests.faults.load import TEXT, Load, all_healthy, gets_requests, until
from tests.faults.processes import cpu_seconds, exists
from tests.server import Server

REQUESTS = 1000


async def test_of_a_thousand_requests_none_is_lost_with_one_of_three_engines(three: Server) -> None:
    [killed, *others] = three.engine_pids()
    endless = {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True, "stream": True}
    bodies = [
        {"prompt": f"{number} of many", "max_tokens": 4 + number % 24, "ignore_eos": True}
        for number in range(REQUESTS)
    ]
    load = Load(three, bodies, at_once=24)
    async with Client(three.host, three.port) as client:
        streams = [asyncio.create_task(client.post(TEXT, endless)) for _ in range(3)]  # one at each engine
        await until(lambda: three.metric("vllm:num_requests_running") == 3)
        asking = asyncio.create_task(load.run())
        await until(lambda: len(load.answers) > REQUESTS // 4)
        os.kill(killed, signal.SIGKILL)
        await until(lambda: not all_healthy(three))
        answers = await asking
        [broken] = [stream.result() for stream in streams if stream.done()]
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    assert [answer.status for answer in answers] == [200] * REQUESTS
    for body, answer in zip(bodies, answers, strict=True):
        assert answer.json()["usage"]["completion_tokens"] == body["max_tokens"]
    assert 0 < three.metric("penstock_retries_total") <= 0.2 * REQUESTS
    *_, last = broken.events()
    assert "engine" in last["error"]["message"]
    assert broken.done

    await until(lambda: all_healthy(three))
    [fresh] = set(three.engine_pids()) - {killed, *others}
    assert await gets_requests(three, fresh)


async def test_a_request_that_kills_engines_kills_two_at_most(three: Server) -> None:
    before = three.engine_pids()
    deadly = {"prompt": "Die", "max_tokens": 8000, "ignore_eos": True}
    async with Client(three.host, three.port) as client:
        asking = asyncio.create_task(client.post(TEXT, deadly))
        while not asking.done():
            # It is the only one there is: whoever computes has it.
            used = {pid: cpu_seconds(pid) for pid in before}
            await asyncio.sleep(0.25)
            for pid in before:
                if exists(pid) and cpu_seconds(pid) - used[pid] > 0.1:
                    os.kill(pid, signal.SIGKILL)
        answer = await asking
    assert answer.status == 503
    assert answer.json()["error"]["code"] == "engine_unavailable"
    assert len(set(before) - set(three.engine_pids())) == 2
