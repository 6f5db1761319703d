"""What becomes of requests when an engine hangs."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.faults.client import Client
from tests.faults.load import TEXT, all_healthy, gets_requests, healthy, until
from tests.server import Server

OUT_WITHIN = 10.0 + 5.0  # seconds: what is promised, and what a busy machine may stand still


async def test_a_frozen_engine_is_out_in_time_and_its_requests_are_answered_elsewhere(three: Server) -> None:
    [frozen, *_] = three.engine_pids()
    retries = three.metric("penstock_retries_total")
    begun = {"prompt": "Once", "max_tokens": 1000, "ignore_eos": True, "stream": True}
    waiting = [
        {"prompt": "Soon", "max_tokens": 8, "ignore_eos": True, "stream": turn % 2 == 0} for turn in range(12)
    ]
    seen: list[dict[str, bool]] = []

    def is_out() -> bool:
        seen.append(healthy(three))
        return not all(seen[-1].values())

    async with Client(three.host, three.port) as client:
        streams = [asyncio.create_task(client.post(TEXT, begun)) for _ in range(3)]  # one at each engine
        await until(lambda: three.metric("vllm:num_requests_running") == 3)
        os.kill(frozen, signal.SIGSTOP)
        try:
            asking = [asyncio.create_task(client.post(TEXT, body)) for body in waiting]
            busy = [asyncio.create_task(client.post(TEXT, heavy(number))) for number in range(4)]
            await until(is_out, seconds=OUT_WITHIN)
            answers = await asyncio.gather(*asking, *busy)  # before it wakes
            is_out()
        finally:
            os.kill(frozen, signal.SIGCONT)
        await until(lambda: all_healthy(three))
        finished = await asyncio.gather(*streams)
    assert [answer.status for answer in answers] == [200] * 16
    assert not any(b'"error"' in answer.body for answer in answers)
    assert all(answer.done for answer, body in zip(answers, waiting, strict=False) if body["stream"])
    assert three.metric("penstock_retries_total") - retries >= 2, "nothing was waiting at the frozen engine"
    assert len({name for states in seen for name, well in states.items() if not well}) == 1
    # What it had begun to answer it finishes when it wakes.
    assert [answer.done and b'"error"' not in answer.body for answer in finished] == [True] * 3
    assert await gets_requests(three, frozen)


def heavy(number: int) -> dict[str, object]:
    """A prompt that takes an engine seconds, and that it has not seen."""
    return {"prompt": f"{number} " + "long " * 1000, "max_tokens": 4, "ignore_eos": True}


@pytest.mark.slow
async def test_busy_engines_stay_in(three: Server) -> None:
    """Long prompts, more of them than run at once: nothing comes out for a while, and nobody is suspected."""
    seen: list[dict[str, bool]] = []
    async with Client(three.host, three.port) as client:
        asking = [
            asyncio.create_task(client.post(TEXT, {**heavy, "cache_salt": str(number)}))
            for number in range(60)
        ]
        while not all(task.done() for task in asking):
            seen.append(await asyncio.to_thread(healthy, three))
            await asyncio.sleep(0.1)
        answers = await asyncio.gather(*asking)
    assert [answer.status for answer in answers] == [200] * len(answers)
    assert len(seen) > 20
    assert all(all(states.values()) for states in seen)
