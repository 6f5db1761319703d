"""A whole engine on a real GPU: the text of the CPU, captured steps, want of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.request import Request, SamplingParams
from tests.engine.tiny import save_tiny_llama

pytestmark = pytest.mark.gpu

PROMPTS = [list(range(17 * number, 17 * number + 5 + 3 * number)) for number in range(1, 21)]
GREEDY = SamplingParams(max_tokens=48, temperature=0.0, ignore_eos=True)
WIDE = {"hidden_size": 1024, "head_dim": 64, "num_attention_heads": 16, "num_key_value_heads": 4}


def texts(core: EngineCore, prompts: list[list[int]], params: SamplingParams = GREEDY) -> list[list[int]]:
    for number, prompt in enumerate(prompts):
        core.submit(Request(id=str(number), prompt=prompt, params=replace(params, seed=number)))
    found: dict[str, list[int]] = {str(number): [] for number in range(len(prompts))}
    while core.has_work:
        for event in core.step():
            assert event.finish_reason != "error", event.error
            found[event.request_id] += event.token_ids
    core.check()
    return list(found.values())


@pytest.fixture(autouse=True)
def _memory_for_all() -> Iterator[None]:
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


def config(path: Path, **options: object) -> EngineConfig:
    settings = {"device": "cuda", "precision": "float32", "kv_cache_memory": 1 << 30, **options}
    return EngineConfig(model=str(path), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"block_size": 16},
        {"without": ("graphs", "overlap")},
        {"without": ("fused", "skinny", "shared_prefix")},
        {"max_step_tokens": 32, "max_running": 32},
    ],
    ids=["as it is", "small blocks", "no graphs, no overlap", "nothing fused", "small chunks"],
)
def test_greedy_text_in_float32_is_the_cpus(default_model: Path, options: dict[str, object]) -> None:
    on_cpu = EngineCore(config(default_model, device="cpu", max_model_len=1024))
    on_gpu = EngineCore(config(default_model, max_model_len=1024, **options))
    expected = texts(on_cpu, PROMPTS)
    assert texts(on_gpu, PROMPTS) == expected
    # Now every kind of step has been captured.
    assert texts(on_gpu, PROMPTS) == expected


def test_drawn_text_does_not_depend_on_graphs_or_overlap(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path, **WIDE)
    params = SamplingParams(max_tokens=40, temperature=0.9, top_p=0.9, top_k=50, ignore_eos=True)
    prompts = [[token % 256 for token in prompt] for prompt in PROMPTS]
    expected = texts(EngineCore(config(tmp_path, without=("graphs", "overlap"))), prompts, params)
    assert texts(EngineCore(config(tmp_path)), prompts, params) == expected


def test_want_of_memory_is_survived(tmp_path: Path) -> None:
    save_tiny_llama(tmp_path, max_position_embeddings=4096, intermediate_size=65536, **WIDE)
    prompts = [[(7 * token + number) % 256 for token in range(2000)] for number in range(8)]
    params = replace(GREEDY, max_tokens=8)
    expected = texts(EngineCore(config(tmp_path, max_step_tokens=16384)), prompts, params)
    core = EngineCore(config(tmp_path, max_step_tokens=16384))
    # A step of all prompts would take 16,000 x 131,072 numbers of four bytes.
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (3 << 30)) / total)
    assert texts(core, prompts, params) == expected
    assert core.stats().oom_steps > 0
    assert core.stats().failed_steps == 0
