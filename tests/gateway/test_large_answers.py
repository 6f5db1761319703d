"""Large answers are written apart from the event loop: other clients' streams go on meanwhile."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from penstock import hub
from penstock.engine.config import EngineInfo
from penstock.engine.request import Request, TokenEvent, TokenLogprobs
from penstock.gateway.local.model import ServedModel
from penstock.gateway.state import Gateway
from penstock.text.tokenizer import Tokenizer
from tests.backends import InstantBackend, ask, gateway_of

T = TypeVar("T")

INFO = EngineInfo(
    architecture="llama", device="cpu", precision="float32", quantization="none", vocab_size=49152,
    max_model_len=8192, max_running=8, max_step_tokens=512, block_size=16, num_blocks=512,
    weight_bytes=1, load_seconds=0.0, tasks=("generate", "embed", "score"), pooling="mean",
    embedding_size=1024,
)  # fmt: skip
VECTOR = np.arange(1024, dtype="<f4") / 7


def reply(request: Request) -> Iterator[TokenEvent]:
    if request.pooling is not None:
        yield TokenEvent(request_id=request.id, finish_reason="stop", embedding=VECTOR.tobytes())
        return
    top = request.params.prompt_logprobs
    scores = [] if top is None else [score(place, top) for place in range(len(request.prompt) - 1)]
    own = [] if request.params.logprobs is None else [score(5, request.params.logprobs)]
    for index in range(request.params.n):
        found = [] if index else scores
        yield TokenEvent(
            request_id=request.id, index=index, token_ids=[500], logprobs=own, prompt_logprobs=found,
            finish_reason="length",
        )  # fmt: skip


def score(place: int, top: int) -> TokenLogprobs:
    return TokenLogprobs(-1.5, [place + other for other in range(top)], [-1.0] * top, 30)


class Watched(Tokenizer):
    """Notes the thread in which tokens become text, each time."""

    threads: list[str]

    def token_text(self, token_id: int) -> str:
        self.threads.append(threading.current_thread().name)
        return super().token_text(token_id)


class Model(ServedModel):
    """Notes the thread in which each answer is written."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(("m",), tokenizer, INFO)
        self.threads: list[str] = []

    async def written(self, size: int, work: Callable[[], T]) -> T:
        def noted() -> T:
            self.threads.append(threading.current_thread().name)
            return work()

        return await super().written(size, noted)


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return Watched.load(hub.resolve(str(default_model)))


@pytest.fixture
async def gateway(tokenizer: Watched) -> Gateway:
    gateway = gateway_of(Model(tokenizer), InstantBackend(INFO, reply))
    tokenizer.threads = []
    return gateway


def threads(gateway: Gateway) -> list[str]:
    model = gateway.deployments["m"].served
    assert isinstance(model, Model)
    return model.threads


def loop_thread() -> str:
    return threading.current_thread().name


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
async def test_many_vectors(gateway: Gateway, encoding_format: str) -> None:
    body = {"input": [[5]] * 40, "encoding_format": encoding_format, "normalize": False, "dimensions": 500}
    answer = json.loads(await ask(gateway, "createEmbedding", body))
    assert loop_thread() not in threads(gateway)
    assert [entry["index"] for entry in answer["data"]] == list(range(40))
    assert {entry["object"] for entry in answer["data"]} == {"embedding"}
    values = [entry["embedding"] for entry in answer.pop("data")]
    if encoding_format == "base64":
        values = [np.frombuffer(base64.b64decode(each), "<f4").tolist() for each in values]
    assert values == [VECTOR[:500].tolist()] * 40
    assert answer["usage"].pop("latency_ms") > 0
    assert answer == {"object": "list", "model": "m", "usage": {"prompt_tokens": 40, "total_tokens": 40}}


async def test_one_vector_takes_no_detour(gateway: Gateway) -> None:
    await ask(gateway, "createEmbedding", {"input": "hi"})
    assert threads(gateway) == [loop_thread()]


async def test_the_scores_of_a_long_prompt(gateway: Gateway, tokenizer: Watched) -> None:
    prompt = [7] * 300
    body = {"prompt": prompt, "max_tokens": 1, "prompt_logprobs": 20, "n": 8}
    answer = json.loads(await ask(gateway, "createCompletion", body))
    assert loop_thread() not in threads(gateway) + tokenizer.threads
    rows = [choice["prompt_logprobs"] for choice in answer["choices"]]
    assert len(rows) == 8
    assert all(each == rows[0] for each in rows)
    assert len(rows[0]) == 300
    # Once for all choices: a text for each score, and for the prompt's own token.
    assert len(tokenizer.threads) <= 300 * 21


@pytest.mark.parametrize("stream", [False, True])
async def test_the_scores_of_a_long_prompt_that_is_echoed(
    gateway: Gateway, tokenizer: Watched, stream: bool
) -> None:
    body = {"prompt": [7] * 1000, "max_tokens": 1, "logprobs": 5, "echo": True, "stream": stream}
    answer = (await ask(gateway, "createCompletion", body)).decode()
    assert answer.count('"text_offset":[0,') == 1
    assert loop_thread() not in threads(gateway)
    # The answer's own token is shown as it comes.
    assert tokenizer.threads.count(loop_thread()) < 20
