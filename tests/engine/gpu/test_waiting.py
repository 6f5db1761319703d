"""A step is launched on a real GPU without waiting for what it computes, whatever its requests want."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import pytest
import torch

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.request import Request, SamplingParams
from penstock.engine.run.runner import Launched, Runner
from penstock.engine.schedule.plan import StepPlan
from tests.engine.tiny import save_tiny_llama

WISHES: list[dict[str, object]] = [
    {"temperature": 0.0, "logprobs": 2},
    {"top_p": 0.9, "top_k": 30, "prompt_logprobs": 1},
    {"repetition_penalty": 1.3, "presence_penalty": 0.5, "logprobs": 0},
    {"logit_bias": {5: 2.0}, "allowed_token_ids": tuple(range(99)), "n": 2},
    {"min_tokens": 9, "stop_token_ids": tuple(range(50))},
    {"allowed_token_ids": (5,), "stop_token_ids": (5,), "min_tokens": 3, "presence_penalty": 0.5},
]


def requests(round_of: int) -> list[Request]:
    found = []
    for at, wish in enumerate(WISHES):
        params = SamplingParams(**{"max_tokens": 12, "seed": at, **wish})
        name, prompt = f"{round_of} plain {at}", [at, 7, 3] * (1 + 7 * at)
        found.append(Request(id=name, prompt=prompt, params=params, bad_words=((1,), (2, 3))))
    found += [Request(id=f"{round_of} {name}", prompt=[1, 2] * 40, pooling=name) for name in ("last", "mean")]
    guided = SamplingParams(max_tokens=9, seed=1)
    found.append(Request(id=f"{round_of} guided", prompt=[4], params=guided, guided=((1, 2, 3), (1, 9))))
    return found


def launch_without_waiting(runner: Runner, plan: StepPlan) -> Launched:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not find everything
        torch.cuda.set_sync_debug_mode("error")
    try:
        return Runner.launch(runner, plan)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_no_launch_waits_for_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny_llama(tmp_path, hidden_size=256, head_dim=64)
    config = EngineConfig(
        model=str(tmp_path),
        device="cuda",
        kv_cache_memory=64 << 20,
        max_step_tokens=64,
        prefix_caching=False,
    )
    core = EngineCore(config)
    for round_of in range(2):
        for request in requests(round_of):
            core.submit(request)
        failed = set()
        while core.has_work:
            failed |= {event.request_id for event in core.step() if event.finish_reason == "error"}
        assert failed == {f"{round_of} plain 5"}
        assert core.stats().failed_steps == 0
        # The first round has compiled and captured what the second needs.
        monkeypatch.setattr(core._runner, "launch", partial(launch_without_waiting, core._runner))
