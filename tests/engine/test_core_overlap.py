"""Working a step ahead of a real runner gives everybody what they get one step at a time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.engine.core import EngineCore
from penstock.engine.request import Request, SamplingParams, TokenEvent
from penstock.engine.run.runner import Runner
from tests.engine.engines import config_of
from tests.engine.tiny import save_tiny_llama

POISON = 255  # a token whose embedding is not a number
# Nothing is left to draw, which the host learns only when the next step has been launched.
NOTHING_LEFT = {"allowed_token_ids": (5,), "stop_token_ids": (5,), "min_tokens": 3}
PENALTIES = {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.2}
FAILING = {
    *("plain 11", "plain 12", "plain 13"),
    *("broken 0", "broken 1", "broken 2"),
    *("last broken", "mean broken"),
}
CANCELLED = {("plain 9", 0): 4, ("plain 6", 1): 7}  # choices: after so many tokens

WISHES: list[dict[str, object]] = [
    {"temperature": 0.0, "max_tokens": 30},
    {"temperature": 1.0, "top_p": 0.9, "top_k": 30},
    {"temperature": 0.8, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2},
    {"temperature": 1.0, "min_tokens": 9, "stop_token_ids": tuple(range(100))},
    {"temperature": 1.0, "stop_token_ids": tuple(range(0, 256, 9))},
    {"temperature": 0.0, "logprobs": 2, "prompt_logprobs": 1},
    {"temperature": 1.0, "n": 3, "logit_bias": {5: 2.0}},
    {"temperature": 1.0, "max_tokens": 1},
    {"temperature": 0.0, "max_tokens": 0, "prompt_logprobs": 0},
    {"temperature": 1.0, "logprobs": 1, "repetition_penalty": 1.1},
    {"temperature": 1.0, "n": 1, "best_of": 3},
    NOTHING_LEFT,
    {**NOTHING_LEFT, **PENALTIES, "logprobs": 1},
    {"temperature": 1.0, "logit_bias": {POISON: 9.0}, **PENALTIES},  # breaks off in the middle
]


def answers(model: Path, *, ahead: bool) -> dict[tuple[str, int], list[TokenEvent]]:
    """Of many requests at once, in a memory that is too small for them."""
    core = EngineCore(
        config_of(
            model,
            max_running=5,
            max_waiting=50,
            max_step_tokens=24,
            kv_cache_memory=24 * 4 * 256,
            block_size=4,
        )
    )
    for at, wish in enumerate(WISHES):
        params = SamplingParams(**{"max_tokens": 20, "seed": at, **wish}).for_engine()
        core.submit(Request(id=f"plain {at}", prompt=[at, 7, 3] * (2 + at % 9), params=params))
    for at, broken in enumerate(({}, PENALTIES, {"logprobs": 2})):
        params = SamplingParams(max_tokens=20, seed=at, **broken)
        core.submit(Request(id=f"broken {at}", prompt=[at, POISON, 3], params=params))
    for pooling in ("last", "mean"):
        for name, token in (("good", 9), ("broken", POISON)):
            core.submit(Request(id=f"{pooling} {name}", prompt=[4, token, 6] * 9, pooling=pooling))
    core.submit(
        Request(
            id="guided",
            prompt=[4, 5, 6],
            params=SamplingParams(seed=1, max_tokens=9),
            guided=((1, 2, 3), (1, 2, 4, 5), (9,)),
            eos_token_ids=(200,),
        )
    )
    core.submit(
        Request(
            id="bad words",
            prompt=[8, 9],
            params=SamplingParams(temperature=0.0, max_tokens=12),
            bad_words=tuple((first, second) for first in range(16) for second in range(64)),
        )
    )
    found: defaultdict[tuple[str, int], list[TokenEvent]] = defaultdict(list)
    events = core.step()
    assert bool(events) != ahead, "working ahead, the first tokens come with the second step"
    while events or core.has_work:
        for event in events:
            key = event.request_id, event.index
            found[key].append(event)
            if len(found[key]) == CANCELLED.get(key):
                found[key] += core.cancel(*key)
        events = core.step() if core.has_work else []
    core.check()
    stats = core.stats()
    assert stats.preemptions > 0
    assert stats.failed_steps == 0
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = save_tiny_llama(tmp_path_factory.mktemp("model"))
    weights = load_file(path / "model.safetensors")
    weights["model.embed_tokens.weight"][POISON] = torch.nan
    save_file(weights, path / "model.safetensors")
    return path


def test_overlapping_steps_change_no_answer(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answers(model, ahead=False)
    monkeypatch.setattr(Runner, "overlaps", True)
    found = answers(model, ahead=True)
    # What came from the cache and who was set back depends on who was there before, and times on the clock.
    for events in (*expected.values(), *found.values()):
        for event in events:
            event.cached_tokens, event.scheduled, event.preemptions = 0, 0.0, 0
    assert found == expected
    ends = {key: events[-1].finish_reason for key, events in expected.items()}
    failed = {name for (name, _), reason in ends.items() if reason == "error"}
    assert failed == FAILING
    assert len(expected["plain 13", 0]) > 2
    assert {key for key, reason in ends.items() if reason == "cancelled"} == CANCELLED.keys()
    assert all(expected[f"{pooling} good", 0][0].embedding for pooling in ("last", "mean"))
