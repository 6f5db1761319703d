"""Many requests at a time, and what a server says of its replicas meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.faults.client import Answer, Client
from tests.faults.processes import cpu_seconds
from tests.server import Server, poll

TEXT = "/v1/completions"


class Load:
    """Asks `bodies` in their order, so many at once. `answers` grows as they are answered."""

    def __init__(self, server: Server, bodies: list[dict[str, Any]], at_once: int) -> None:
        self.bodies = bodies
        self.answers: dict[int, Answer] = {}  # by the request's number
        self._server = server
        self._at_once = at_once

    async def run(self) -> list[Answer]:
        turns = iter(range(len(self.bodies)))

        async def work(client: Client) -> None:
            for turn in turns:
                self.answers[turn] = await client.post(TEXT, self.bodies[turn])

        async with Client(self._server.host, self._server.port) as client:
            await asyncio.gather(*(work(client) for _ in range(self._at_once)))
        return [self.answers[turn] for turn in range(len(self.bodies))]


async def until(check: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """`poll` beside a load that runs on this loop."""
    await asyncio.to_thread(poll, check, seconds=seconds)


def healthy(server: Server) -> dict[str, bool]:
    """Which replicas get requests."""
    return {labels["replica"]: value == 1.0 for labels, value in server.metrics("penstock_replica_healthy")}


def all_healthy(server: Server) -> bool:
    return all(healthy(server).values())


async def gets_requests(server: Server, pid: int) -> bool:
    """Whether this engine has a part of the work when there is much."""
    before = cpu_seconds(pid)
    work = [{"prompt": f"Number {number}", "max_tokens": 100, "ignore_eos": True} for number in range(24)]
    answers = await Load(server, work, at_once=24).run()
    assert [answer.status for answer in answers] == [200] * len(work)
    return cpu_seconds(pid) > before + 0.05
