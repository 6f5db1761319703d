"""The same request gives the same tokens, whatever company it has and however it was scheduled."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.request import Request, SamplingParams
from penstock.hub import resolve
from tests.engine.tiny import save_tiny_llama

REQUESTS = 32
# Bytes of one block of 16 tokens in the tiny model (2 layers, 2 KV heads of 8, keys and values, float32).
TINY_BLOCK = 16 * 2 * 2 * 2 * 8 * 4

# How the engine is set up in each case; the results must not differ.
SETTINGS: dict[str, dict[str, Any]] = {
    "chunks of 16": {"max_step_tokens": 16, "max_running": 8},
    "chunks of 64": {"max_step_tokens": 64, "max_running": 32},
    "chunks of 512": {"max_step_tokens": 512, "max_running": 32},
    "no prefix cache": {"prefix_caching": False, "max_running": 32},
    "small blocks": {"block_size": 4, "max_running": 32},
    "large blocks": {"block_size": 64, "max_running": 32},
    "preempted": {"kv_cache_memory": 18 * TINY_BLOCK, "max_running": 32},
    "preempted without prefix cache": {
        "kv_cache_memory": 18 * TINY_BLOCK,
        "max_running": 32,
        "prefix_caching": False,
    },
    "a window": {"arrival_window": 0.02, "max_running": 32},
}


def requests_for(vocab: int, tokens: int) -> list[Request]:
    """Greedy and seeded, with and without filters and penalties, several sharing a prefix."""
    rng = random.Random(5)
    shared = [rng.randrange(vocab) for _ in range(70)]
    made = []
    for number in range(REQUESTS):
        own = [rng.randrange(vocab) for _ in range(rng.randint(1, 90))]
        kinds = [
            SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True),
            SamplingParams(temperature=1.0, seed=number, max_tokens=tokens, ignore_eos=True),
            SamplingParams(temperature=0.8, top_k=40, top_p=0.9, seed=number, max_tokens=tokens),
            SamplingParams(temperature=1.2, min_p=0.02, presence_penalty=0.5, repetition_penalty=1.2, seed=7,
                           max_tokens=tokens, n=2, logprobs=3),
            SamplingParams(temperature=1.0, seed=number, max_tokens=tokens, prompt_logprobs=2,
                           allowed_token_ids=range(3, vocab, 2)),
        ]  # fmt: skip
        prompt = shared + own if number % 3 == 0 else own
        # Rules about what may come next must not be upset by being preempted and resumed either.
        bad = tuple((token, after) for token in range(3, 43) for after in range(0, vocab, vocab // 85))
        choices = tuple(tuple(rng.choices(range(3, 9), k=12)) for _ in range(200))
        made.append(
            Request(
                id=str(number),
                prompt=prompt,
                params=kinds[number % 5],
                eos_token_ids=(2,),
                bad_words=bad if number % 5 == 0 else (),
                guided=choices if number % 5 == 2 else (),
            )
        )
    return made


def run(engine: EngineCore, requests: list[Request]) -> dict[tuple[str, int], list[Any]]:
    """The tokens of each choice, after the log-probabilities of its prompt where they were asked for."""
    for request in requests:
        engine.submit(request)
    found: dict[tuple[str, int], list[Any]] = {}
    while engine.has_work:
        for event in engine.step():
            assert event.error is None
            # A GPU gives the same tokens, but not the same last bits of their probabilities.
            exact = engine.info.device == "cpu"
            read = [entry if exact else entry.top_ids[0] for entry in event.prompt_logprobs]
            found.setdefault((event.request_id, event.index), []).extend([*read, *event.token_ids])
    engine.check()
    stats = engine.stats()
    assert stats.blocks_free + stats.blocks_cached == stats.blocks_total
    return found


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def alone(tiny: Path) -> dict[tuple[str, int], list[Any]]:
    """Every request by itself on an engine that has seen nothing before it."""
    requests = requests_for(256, 40)
    found = {}
    for request in requests:
        found.update(
            run(EngineCore(EngineConfig(model=str(tiny), kv_cache_memory=40 * TINY_BLOCK)), [request])
        )
    assert len(set(map(str, found.values()))) > REQUESTS / 2, "the model must not always say the same"
    return found


@pytest.mark.parametrize("setting", SETTINGS)
def test_tokens_are_those_of_the_request_alone(
    setting: str, tiny: Path, alone: dict[tuple[str, int], list[Any]]
) -> None:
    options = {"kv_cache_memory": 400 * TINY_BLOCK, **SETTINGS[setting]}
    engine = EngineCore(EngineConfig(model=str(tiny), **options))
    assert run(engine, requests_for(256, 40)) == alone
    if setting.startswith("preempted"):
        assert engine.stats().preemptions > 5
    if "prefix_caching" not in options:
        assert engine.stats().prefix_hits > 0
        # Once more, now that everything is in the cache.
        assert run(engine, requests_for(256, 40)) == alone


def test_the_default_model_says_the_same_alone_and_in_a_batch() -> None:
    model = str(resolve("default").path)
    requests = requests_for(49152, 12)
    batch = run(EngineCore(EngineConfig(model=model)), requests)
    engine = EngineCore(EngineConfig(model=model, prefix_caching=False, max_step_tokens=64))
    for request in requests[:8]:
        for key, tokens in run(engine, [request]).items():
            assert tokens == batch[key], key
