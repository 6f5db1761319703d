"""What is billed is what was delivered, over thousands of requests of which many go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.faults.client import Answer, Client
from tests.faults.command import penstock
from tests.faults.load import until
from tests.server import Server
from tests.servers.openai import MIDWAY, WORD, Fleet, prompt_tokens

CHAT = "/v1/chat/completions"
TENANTS = ("acme", "beta", "gone")  # those of the last hang up abruptly
CONCURRENT = 40  # of acme's requests
EARLY = ("silent", "500", "503", "429", "nonsense")
# Dollars, per million tokens and per request, and the same in picodollars.
PRICES: Final[dict[str, dict[str, float]]] = {
    "big": {"input": 1.37, "cached_input": 0.11, "output": 5.43, "request": 0.000007},
    "small": {"input": 0.09, "output": 0.31},
}
PICO = {"big": (1_370_000, 110_000, 5_430_000, 7_000_000), "small": (90_000, 90_000, 310_000, 0)}


@dataclass
class Bill:
    """Of one tenant and model."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    picodollars: int = 0

    def add(self, model: str, prompt: int, cached: int, completion: int) -> None:
        fresh, again, output, request = PICO[model]
        self.prompt += prompt
        self.cached += cached
        self.completion += completion
        self.picodollars += (prompt - cached) * fresh + cached * again + completion * output + request


@dataclass
class Asked:
    """A request, how its client behaves, and what came of it."""

    tenant: str
    path: str
    body: dict[str, Any]
    leave_after: int | None
    answer: Answer = field(default_factory=lambda: Answer(0, {}, b""))
    id: str = ""

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    def words(self) -> int:
        """Tokens that the client has read. Its answers hold no other w."""
        if not self.stream:
            return sum(choice["message"]["content"].count(WORD) for choice in self.answer.json()["choices"])
        texts = (choice["delta"].get("content", "") for event in self.answer.events()
                 for choice in event.get("choices", ()))  # fmt: skip
        return sum(text.count(WORD) for text in texts)

    def bill(self, bills: dict[tuple[str, str], Bill]) -> None:
        """What its client has seen of it, at the price of the model that its headers name."""
        if self.answer.status != 200:
            return
        model = self.answer.headers["x-penstock-tier"]
        if self.path != CHAT:
            bills[self.tenant, model].add(model, self.body["input"].count(WORD), 0, 0)
            return
        completion = self.words()
        if completion:
            prompt = prompt_tokens(self.body["messages"])
            cached = prompt // 3 if model == "big" else 0
            bills[self.tenant, model].add(model, prompt, cached, completion)


def plan(number: int, draw: random.Random) -> Asked:
    """Half are streams; a sixth of all meet faults, before or after the first byte, some of them three
    times in a row; a seventh of the clients leave."""
    tenant = draw.choices(TENANTS, (5, 4, 1))[0]
    model = draw.choice(("big", "small"))
    if draw.random() < 0.05:
        return Asked(tenant, "/v1/embeddings", {"model": model, "input": WORD * draw.randint(1, 50)}, None)
    stream = draw.random() < 0.5 or tenant == "gone"
    faults: list[str] = []
    if draw.random() < 0.16:
        faults = [draw.choice((*EARLY, *MIDWAY, "400"))] if draw.random() < 0.8 else [draw.choice(EARLY)] * 3
    tokens = draw.randint(1, 24)
    leave_after = None
    if draw.random() < 0.14 or tenant == "gone":
        leave_after = draw.randint(1 if tenant == "gone" else 0, max(1, tokens))
    content = {
        "tokens": tokens,
        "faults": faults,
        "pause": draw.random() * 0.004,
        "text": "x" * draw.randint(0, 200),
    }
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "system", "content": f"Request {number}"},
            {"role": "user", "content": json.dumps(content)},
        ],
    }
    if stream:
        body["stream"] = True
        if draw.random() < 0.3:
            body["stream_options"] = {"include_usage": True}
    elif draw.random() < 0.1:
        body["n"] = 2
    return Asked(tenant, CHAT, body, leave_after)


@contextlib.asynccontextmanager
async def door(folder: Path, workers: int) -> AsyncIterator[tuple[Server, dict[str, Fleet], dict[str, str]]]:
    """A gateway with two models of three replicas each, and a key for each tenant."""
    tries: Counter[str] = Counter()
    fleets = {"big": Fleet(cached=True, tokens_per_chunk=3, tries=tries), "small": Fleet(tries=tries)}
    kinds = {"big": "vllm", "small": "openai_compatible"}  # the first tells the usage with every chunk
    async with contextlib.AsyncExitStack() as stack:
        models: dict[str, Any] = {}
        for name, fleet in fleets.items():
            replicas = [await stack.enter_async_context(fleet.replica()) for _ in range(3)]
            backends = [{kinds[name]: replica.url} for replica in replicas]
            models[name] = {"backends": backends, "price": PRICES[name], "balance": "round_robin"}
        models["big"]["fallbacks"] = ["small"]
        config = {
            "workers": workers,
            "models": models,
            "tenants": {
                "acme": {"concurrent": CONCURRENT, "monthly_budget": 1000},
                "beta": {"tokens_per_minute": "900m", "requests_per_minute": "1m"},
                "gone": {"concurrent": 1000},
            },
            # Every replica stays in, however often it fails.
            "health": {"error_requests": 1_000_000},
            "retry": {"backoff": "2ms"},
        }
        file = folder / "penstock.yaml"
        file.write_text(yaml.safe_dump(config))
        keys = {
            tenant: penstock("keys", "create", tenant, "--tenant", tenant, state=folder / "log.state")["key"]
            for tenant in TENANTS
        }
        server = await asyncio.to_thread(lambda: Server(None, "--config", str(file), log=folder / "log"))
        try:
            yield server, fleets, keys
        finally:
            await asyncio.to_thread(server.stop)


@pytest.mark.parametrize(
    ("requests", "workers"),
    [
        (1500, 1),
        pytest.param(10_000, 1, marks=pytest.mark.slow),
        pytest.param(10_000, 2, marks=pytest.mark.slow),
    ],
)
async def test_billed_is_what_was_delivered(requests: int, workers: int, tmp_path: Path) -> None:
    draw = random.Random(4)
    asked = [plan(number, draw) for number in range(requests)]
    async with door(tmp_path, workers) as (server, fleets, keys):
        await ask_all(server, keys, asked)
        # All holds have been settled: as many as ever may come at once again, and not one more.
        await until(lambda: server.metric("penstock_replica_requests") == 0)
        last = [waiting() for _ in range(CONCURRENT + 1)]
        async with Client(server.host, server.port) as client:
            asking = [asyncio.create_task(ask(client, keys, each)) for each in last]
            await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)  # the one that is refused
            fleets["small"].go.set()
            await asyncio.gather(*asking)
        assert sorted(each.answer.status for each in last) == [200] * CONCURRENT + [429]
    check_mixture(asked)
    rows = penstock("usage", state=tmp_path / "log.state")["rows"]
    check_totals([*asked, *last], rows, fleets)


def waiting() -> Asked:
    content = json.dumps({"tokens": 1, "wait": True})
    return Asked("acme", CHAT, {"model": "small", "messages": [{"role": "user", "content": content}]}, None)


async def ask_all(server: Server, keys: dict[str, str], asked: list[Asked]) -> None:
    turns = iter(asked)

    async def work(client: Client) -> None:
        for each in turns:
            await ask(client, keys, each)

    async with Client(server.host, server.port) as client:
        await asyncio.gather(*(work(client) for _ in range(CONCURRENT - 8)))


async def ask(client: Client, keys: dict[str, str], each: Asked) -> Asked:
    each.id = f"{id(each):x}"
    headers = {"authorization": f"Bearer {keys[each.tenant]}", "x-request-id": each.id}
    abruptly = each.tenant == "gone"
    each.answer = await client.post(each.path, each.body, headers, each.leave_after, abruptly)
    return each


def check_mixture(asked: list[Asked]) -> None:
    """That all kinds of trouble did happen."""
    answers = [each.answer for each in asked]
    statuses = Counter(answer.status for answer in answers)
    assert statuses[200] > 0.8 * len(asked)
    assert statuses[400] > 0
    assert sum(b'"error"' in answer.body for answer in answers if answer.status == 200) > len(asked) / 100
    assert (
        sum(answer.left and not answer.done and answer.status == 200 for answer in answers) > len(asked) / 50
    )
    fell_back = [
        each for each in asked
        if each.body["model"] == "big" and each.answer.headers.get("x-penstock-tier") == "small"
    ]  # fmt: skip
    assert fell_back


def check_totals(asked: list[Asked], rows: list[dict[str, Any]], fleets: dict[str, Fleet]) -> None:
    bills = {(tenant, model): Bill() for tenant in TENANTS for model in PRICES}
    for each in asked:
        each.bill(bills)
    for tenant in TENANTS:
        counted = sum(row["requests"] for row in rows if row["tenant"] == tenant)
        assert counted == sum(each.tenant == tenant for each in asked)
    for row in rows:
        bill = bills[row["tenant"], row["model"]]
        if row["tenant"] == "gone":
            # What an abrupt end left unread nobody knows: not less than was read, not more than was sent.
            sent = sum(
                fleet.sent[each.id] for each in asked if each.tenant == "gone" for fleet in fleets.values()
            )
            assert bill.completion <= row["completion_tokens"] <= sent
            continue
        found = (row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"], row["cost_usd"])
        dollars = f"{bill.picodollars // 10**12}.{bill.picodollars % 10**12:012d}"
        assert found == (bill.prompt, bill.cached, bill.completion, dollars.rstrip("0")), row
