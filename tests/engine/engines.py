"""Engines in their own process over a tiny model, and what tests ask of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.engine.config import EngineConfig, EngineInfo
from penstock.engine.process import EngineClient
from penstock.engine.request import Request, SamplingParams, TokenLogprobs
from tests.engine.tiny import save_tiny_llama

CONTEXT = 4096  # long enough that a request lasts for seconds
# Of an engine that is only spoken of.
INFO = EngineInfo(
    architecture="llama",
    device="cpu",
    precision="float32",
    quantization="none",
    vocab_size=256,
    max_model_len=64,
    max_running=2,
    max_step_tokens=32,
    block_size=16,
    num_blocks=10,
    weight_bytes=0,
    load_seconds=0.0,
)


def save_model(folder: Path) -> Path:
    return save_tiny_llama(folder, max_position_embeddings=CONTEXT)


def config_of(model: Path, **options: object) -> EngineConfig:
    defaults = {
        "kv_cache_memory": 8 << 20,
        "max_running": 4,
        "max_waiting": 4,
        "max_step_tokens": 32,
        "threads": 1,
        "precision": "float32",  # slow enough that something can happen to a request before it ends
    }
    return EngineConfig(model=str(model), **{**defaults, **options})


def request_of(name: str, prompt: list[int] | None = None, **params: object) -> Request:
    defaults = {"temperature": 0.0, "max_tokens": 8}
    return Request(id=name, prompt=prompt or [1, 2, 3], params=SamplingParams(**{**defaults, **params}))


def endless(name: str, **params: object) -> Request:
    """Takes seconds, unless somebody ends it."""
    return request_of(name, max_tokens=CONTEXT - 10, **params)


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)


async def answers_to(client: EngineClient, request: Request) -> list[Answer]:
    """Every choice of a request, to its end."""
    answers = [Answer() for _ in range(request.params.n)]
    with client.submit(request) as events:
        async for event in events:
            assert event.request_id == request.id
            answer = answers[event.index]
            assert not answer.ends, "a choice went on after its end"
            answer.tokens += event.token_ids
            answer.logprobs += event.logprobs
            if event.finish_reason is not None:
                answer.ends.append(event.finish_reason)
    assert all(len(answer.ends) == 1 for answer in answers)
    return answers


async def tokens_of(client: EngineClient, request: Request) -> list[int]:
    (answer,) = await answers_to(client, request)
    return answer.tokens


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that must come; the limit only turns a hang into a failure."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.01)


async def until_idle(client: EngineClient) -> None:
    """Nothing runs or waits, and every block is free or reusable."""

    def idle() -> bool:
        stats = client.stats
        return (
            stats.running + stats.waiting == 0
            and stats.blocks_free + stats.blocks_cached == stats.blocks_total > 0
        )

    await until(idle)
