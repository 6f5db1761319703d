"""Working a step ahead of a real runner gives everybody what they get one step at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.engine.core import EngineCore
from penstock.engine.request import Request, SamplingParams, TokenEvent
from penstock.engine.run.runner import Runner
from tests.engine.engines import config_of
from tests.engine.tiny import save_tiny_llama

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
        params = SamplingParams(**{"max_tokens": 20, "seed": at, **wish})
        core.submit(Request(id=f"plain {at}", prompt=[at, 7, 3] * (2 + at), params=params))
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
    found: dict[tuple[str, int], list[TokenEvent]] = {}
    first = core.step()
    assert bool(first) != ahead, "working ahead, the first tokens come with the second step"
    for event in first:
        found[event.request_id, event.index] = [event]
    while core.has_work:
        for event in core.step():
            found.setdefault((event.request_id, event.index), []).append(event)
    core.check()
    assert core.stats().preemptions > 0
    return found


def test_overlapping_steps_change_no_answer(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_tiny_llama(tmp_path_factory.mktemp("model"))
    expected = answers(model, ahead=False)
    monkeypatch.setattr(Runner, "overlaps", True)
    found = answers(model, ahead=True)
    assert found.keys() == expected.keys()
    for key, events in expected.items():
        assert [e.token_ids for e in found[key]] == [e.token_ids for e in events], key
        assert [e.finish_reason for e in found[key]] == [e.finish_reason for e in events], key
        assert [bool(e.logprobs) for e in found[key]] == [bool(e.logprobs) for e in events], key
        assert [len(e.prompt_logprobs) for e in found[key]] == [len(e.prompt_logprobs) for e in events], key
