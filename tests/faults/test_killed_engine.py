"""What becomes of requests when an engine is killed."""

from __future__ import annotations

import asyncio
import os
import signal

from tests.faults.client import Client
from tests.faults.load import TEXT, Load, all_healthy, until
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


async def gets_requests(server: Server, pid: int) -> bool:
    """Whether an engine has a part of the work."""
    before = cpu_seconds(pid)
    work = [{"prompt": f"Number {number}", "max_tokens": 100, "ignore_eos": True} for number in range(24)]
    answers = await Load(server, work, at_once=24).run()
    assert [answer.status for answer in answers] == [200] * len(work)
    return cpu_seconds(pid) > before + 0.05


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
