"""Clients of a server: what became of each request, and in which rhythm requests are sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp

from penstock.bench.statistics import percentile

MODEL = "default"
WORDS = ("gate", "sluice", "river", "wheel", "pipe", "stone", "valley", "rain", "mill", "bridge", "weir")


@dataclass(frozen=True, slots=True)
class Sizes:
    seconds: float = 60.0  # of each part of a scenario
    repeats: int = 2
    replicas: int = 1
    prompt_words: int = 64  # about 100 tokens with the template around them
    max_tokens: int = 12
    max_running: int = 8
    max_step_tokens: int = 32  # waiting for the step under way is a small part of a prompt's four
    queue: int = 32  # requests that may wait


@dataclass(slots=True)
class Outcome:
    """What became of one request. Seconds on one clock."""

    tenant: str
    sent: float
    status: int | None = None
    tokens_at: list[float] = field(default_factory=list)
    ended: float | None = None
    error: str | None = None
    code: str | None = None

    @property
    def ttft(self) -> float | None:
        return self.tokens_at[0] - self.sent if self.tokens_at else None

    @property
    def refused(self) -> bool:
        return self.status in (429, 503)

    @property
    def waited_in_vain(self) -> bool:
        """Accepted, and given up before it had a place: its deadline passed, or others took its place."""
        return self.refused and (self.code == "deadline_exceeded" or "took its place" in (self.error or ""))


class House:
    """A server from its clients' side: where it is, and the keys of its tenants."""

    def __init__(self, url: str, keys: dict[str, str], sizes: Sizes) -> None:
        self.url = url
        self.keys = keys
        self.sizes = sizes
        self._random = random.Random(4)

    async def ask(self, session: aiohttp.ClientSession, tenant: str) -> Outcome:
        words = " ".join(self._random.choices(WORDS, k=self.sizes.prompt_words))
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": words}],
            "max_tokens": self.sizes.max_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        headers = {"Authorization": f"Bearer {self.keys[tenant]}"}
        outcome = Outcome(tenant, time.perf_counter())
        try:
            async with session.post(
                f"{self.url}/v1/chat/completions", json=body, headers=headers
            ) as response:
                outcome.status = response.status
                if response.status != 200:
                    outcome.error = (await response.text())[:300]
                    with contextlib.suppress(ValueError, KeyError):
                        outcome.code = json.loads(outcome.error)["error"]["code"]
                else:
                    await _read(response, outcome)
        except (aiohttp.ClientError, TimeoutError) as error:
            outcome.error = f"{type(error).__name__}: {error}"
        outcome.ended = time.perf_counter()
        return outcome


async def _read(response: aiohttp.ClientResponse, outcome: Outcome) -> None:
    async for line in response.content:
        if line.startswith(b'data: {"error"'):
            outcome.error = line[6:300].decode(errors="replace")
        elif line.startswith(b"data: [DONE]"):
            return
        elif line.startswith(b"data:"):
            choices = json.loads(line[5:])["choices"]
            if choices and choices[0]["delta"].get("content"):
                outcome.tokens_at.append(time.perf_counter())
    outcome.error = outcome.error or "The stream ended without [DONE]."


async def arrivals(
    house: House, session: aiohttp.ClientSession, tenant: str, rate: float, seconds: float
) -> list[Outcome]:
    """Requests at `rate` a second (Poisson), whatever becomes of the earlier ones. Waits for all of them."""
    due, end = time.perf_counter(), time.perf_counter() + seconds
    drawn = random.Random(f"{tenant} {rate}")
    tasks: list[asyncio.Task[Outcome]] = []
    while (due := due + drawn.expovariate(rate)) < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(house.ask(session, tenant)))
    return list(await asyncio.gather(*tasks))


async def clients(
    house: House, session: aiohttp.ClientSession, tenant: str, count: int, seconds: float
) -> list[Outcome]:
    """Each client asks again as soon as it is answered."""
    end = time.perf_counter() + seconds
    outcomes: list[Outcome] = []

    async def client() -> None:
        while time.perf_counter() < end:
            outcomes.append(await house.ask(session, tenant))

    await asyncio.gather(*(client() for _ in range(count)))
    return outcomes


def open_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=600), connector=aiohttp.TCPConnector(limit=0)
    )


def goodput(outcomes: Sequence[Outcome], start: float, end: float) -> float:
    """Tokens a second that arrived between `start` and `end`, of requests that did not fail."""
    tokens = sum(start <= at < end for each in outcomes if each.error is None for at in each.tokens_at)
    return tokens / (end - start)


def ttfts(outcomes: Sequence[Outcome]) -> list[float]:
    return [each.ttft for each in outcomes if each.ttft is not None]


def p99(values: Sequence[float]) -> float:
    return percentile(values, 99) or 0.0


@dataclass(slots=True)
class Report:
    """Rows of the table: what, the bar, what was measured, whether it is good enough."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    outcomes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, scenario: str, title: str, shown: str, *, bar: str = "", met: bool | None = None) -> None:
        self.rows.append({"scenario": scenario, "figure": title, "measured": shown, "bar": bar, "met": met})

    def keep(self, part: str, outcomes: Sequence[Outcome]) -> None:
        self.outcomes.setdefault(part, []).extend(asdict(each) for each in outcomes)
