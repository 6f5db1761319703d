"""What engines of ours deliver, and what is billed of it when clients leave and an engine dies."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.client import Answer, Client
from tests.faults.command import penstock
from tests.faults.load import TEXT, until
from tests.faults.tiny import save_tiny_model
from tests.server import Server

REQUESTS = 300
PRICE = {"input": 3, "cached_input": 1, "output": 7}  # dollars a million: so many microdollars a token


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    engine = {"engine": str(save_tiny_model(tmp_path / "tiny")), "device": "cpu", "replicas": 2}
    config = {
        "models": {"tiny": {"backends": [engine], "price": PRICE}},
        "health": {"restart_backoff": "100ms"},
        "tenants": {"default": {"monthly_budget": 1000}},
    }
    file = tmp_path / "penstock.yaml"
    file.write_text(yaml.safe_dump(config))
    running = Server(None, "--config", str(file), log=tmp_path / "log", env={"PENSTOCK_THREADS": "1"})
    yield running
    running.stop()


async def test_billed_is_what_was_delivered_of_engines(server: Server, tmp_path: Path) -> None:
    draw = random.Random(5)
    beginnings = ["".join(draw.choices("abc ", k=100)) for _ in range(5)]
    answers: list[Answer] = []
    turns = iter(range(REQUESTS))

    async def work(client: Client) -> None:
        for _ in turns:
            body: dict[str, Any] = {
                "prompt": draw.choice(beginnings) + str(draw.random()),
                "max_tokens": draw.randint(1, 60),
                "ignore_eos": True,
                "logprobs": 0,
            }
            leave_after = None
            if draw.random() < 0.7:
                usage = {"include_usage": True, "continuous_usage_stats": True}
                body |= {"stream": True, "stream_options": usage}
                leave_after = draw.choice((None, 0, draw.randint(1, body["max_tokens"])))
            answers.append(await client.post(TEXT, body, leave_after=leave_after))

    async with Client(server.host, server.port) as client:
        asking = asyncio.gather(*(work(client) for _ in range(12)))
        await until(lambda: len(answers) > REQUESTS // 3)
        os.kill(server.engine_pids()[0], signal.SIGKILL)
        await asking
    await until(lambda: server.metric("penstock_replica_requests") == 0)
    moved = server.metric("penstock_retries_total")
    await asyncio.to_thread(server.stop)

    [row] = penstock("usage", state=tmp_path / "log.state")["rows"]
    assert row["requests"] == REQUESTS
    delivered = [delivered_of(answer) for answer in answers if answer.status == 200]
    prompt, cached, completion = (sum(counts) for counts in zip(*delivered, strict=True))
    assert cached > 0
    assert (row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"]) == (
        prompt,
        cached,
        completion,
    )
    microdollars = (prompt - cached) * 3 + cached * 1 + completion * 7
    assert float(row["cost_usd"]) == microdollars / 10**6
    assert moved + sum(b'"error"' in answer.body for answer in answers) > 0
    assert sum(answer.left and not answer.done for answer in answers) > REQUESTS / 20


def delivered_of(answer: Answer) -> tuple[int, int, int]:
    """Tokens of the prompt, of it cached, and of the answer, which are counted by their log-probabilities."""
    if answer.headers["content-type"] == "application/json":
        events = [answer.json()]
    else:
        events = [event for event in answer.events() if "error" not in event]
    tokens = sum(
        len(choice["logprobs"]["tokens"])
        for event in events
        for choice in event["choices"]
        if choice["logprobs"] is not None
    )
    if not tokens:
        return 0, 0, 0
    usage = [event["usage"] for event in events if event.get("usage")][-1]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], tokens
