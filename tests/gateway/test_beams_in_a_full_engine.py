"""A beam search in an engine that others have filled: refused before it begins, or carried to its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import hub
from penstock.engine.config import EngineInfo
from penstock.engine.request import Request, TokenEvent, TokenLogprobs
from penstock.errors import QueueFullError
from penstock.gateway.backends import BackendError
from penstock.gateway.local.model import ServedModel
from penstock.gateway.state import Gateway
from penstock.text.tokenizer import Tokenizer
from tests.backends import InstantBackend, ask, gateway_of

INFO = EngineInfo(
    architecture="llama", device="cpu", precision="float32", quantization="none", vocab_size=49152,
    max_model_len=512, max_running=8, max_step_tokens=512, block_size=16, num_blocks=512, weight_bytes=1,
    load_seconds=0.0,
)  # fmt: skip
BODY = {"prompt": [5, 6], "use_beam_search": True, "n": 2, "max_tokens": 3, "return_token_ids": True}


class Crowd:
    """Others, who have all places whenever `full` says so of a round and how often it was tried."""

    def __init__(self, full: Callable[[int, int], bool], *, late: bool = False) -> None:
        self._full = full
        self._late = late  # the refusal comes in place of the first event
        self.tries: dict[int, int] = {}
        self.tried_again = asyncio.Event()

    def reply(self, request: Request) -> Iterator[TokenEvent]:
        number = int(request.id.split("-")[-2])
        self.tries[number] = tried = self.tries.get(number, 0) + 1
        if self._full(number, tried):
            if tried > 1:
                self.tried_again.set()
            if self._late:
                return refused()
            raise QueueFullError("The engine is full.")
        top = TokenLogprobs(-1.0, list(range(100, 110)), [-1.0 - place for place in range(10)], 1)
        return iter(
            [TokenEvent(request_id=request.id, token_ids=[100], logprobs=[top], finish_reason="length")]
        )


def refused() -> Iterator[TokenEvent]:
    raise QueueFullError("The engine is full.")
    yield


@pytest.fixture
def tokenizer(default_model: Path) -> Tokenizer:
    return Tokenizer.load(hub.resolve(str(default_model)))


def crowded(tokenizer: Tokenizer, crowd: Crowd) -> tuple[Gateway, InstantBackend]:
    backend = InstantBackend(INFO, crowd.reply)
    return gateway_of(ServedModel(("m",), tokenizer, INFO), backend), backend


def endings(gateway: Gateway) -> float:
    lines = gateway.metrics.render().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:request_success_total"))


async def answer(gateway: Gateway, body: dict[str, Any] = BODY) -> list[list[int]]:
    found = json.loads(await ask(gateway, "createCompletion", body))
    return [choice["token_ids"] for choice in found["choices"]]


@pytest.mark.parametrize("late", [False, True])
async def test_a_search_that_has_begun_waits_for_places(tokenizer: Tokenizer, late: bool) -> None:
    free, _ = crowded(tokenizer, Crowd(lambda number, tried: False))
    crowd = Crowd(lambda number, tried: number > 1 and tried < 3, late=late)
    gateway, backend = crowded(tokenizer, crowd)
    assert await answer(gateway) == await answer(free)
    assert crowd.tries[2] > 3
    assert endings(gateway) == 2
    assert backend.open == 0


async def test_a_search_that_has_not_begun_is_refused(tokenizer: Tokenizer) -> None:
    gateway, backend = crowded(tokenizer, Crowd(lambda number, tried: True))
    with pytest.raises(BackendError, match="full"):
        await answer(gateway)
    assert endings(gateway) == 0
    assert backend.open == 0


async def test_a_client_that_leaves_does_not_wait_on(tokenizer: Tokenizer) -> None:
    crowd = Crowd(lambda number, tried: number > 1)
    gateway, backend = crowded(tokenizer, crowd)
    left = asyncio.Event()
    asked = asyncio.create_task(ask(gateway, "createCompletion", BODY, left))
    async with asyncio.timeout(10):
        await crowd.tried_again.wait()
    left.set()
    assert await asked == b""
    assert endings(gateway) == 2
    assert backend.open == 0
