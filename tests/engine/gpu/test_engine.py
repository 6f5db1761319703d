"""A whole engine on a real GPU: the text of the CPU, captured steps, want of memory."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.request import Request, SamplingParams
from penstock.llm import LLM
from tests.engine.gpu.generated import tokens_of
from tests.engine.tiny import save_tiny_llama

pytestmark = pytest.mark.gpu

PROMPTS = [list(range(17 * number, 17 * number + 5 + 3 * number)) for number in range(1, 21)]
GREEDY = SamplingParams(max_tokens=48, temperature=0.0, ignore_eos=True)
WIDE = {"hidden_size": 1024, "head_dim": 64, "num_attention_heads": 16, "num_key_value_heads": 4}


def texts(core: EngineCore, prompts: list[list[int]], params: SamplingParams = GREEDY) -> list[list[int]]:
    return tokens_of(
        core,
        [
            Request(id=str(number), prompt=prompt, params=replace(params, seed=number))
            for number, prompt in enumerate(prompts)
        ],
    )


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


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One shape for all that follow: what is compiled for one is there for the others."""
    return save_tiny_llama(
        tmp_path_factory.mktemp("small"), torch_dtype="bfloat16", max_position_embeddings=2048, **WIDE
    )


@pytest.mark.parametrize("precisions", [{}, {"precision": "fp8", "kv_precision": "fp8"}], ids=["16", "8"])
def test_a_shared_prefix_with_staggered_ends_reads_the_same_without_graphs_and_overlap(
    small: Path, precisions: dict[str, str]
) -> None:
    shared = [(11 * token + token // 64) % 256 for token in range(512)]
    requests = [
        Request(
            id=str(number),
            prompt=[*shared, *(number + 3 * token for token in range(5 + number))],
            # They leave one after another, the first of the tile among the earliest.
            params=replace(GREEDY, max_tokens=8 + 5 * ((7 * number) % 12), seed=number),
        )
        for number in range(12)
    ]

    def answers(core: EngineCore) -> list[list[int]]:
        # The first alone, so that the others find the prefix in the cache.
        return tokens_of(core, requests[:1]) + tokens_of(core, requests[1:])

    options = {"precision": "bfloat16", **precisions}
    core = EngineCore(config(small, **options))
    first, again = answers(core), answers(core)
    plain = EngineCore(config(small, **options, without=("graphs", "overlap")))
    assert answers(plain) == first
    # The prompts are all in the cache now, and so computed in other pieces.
    assert answers(plain) == again


def test_what_is_not_a_number_in_a_captured_step_ends_its_request_alone(tmp_path: Path) -> None:
    path = save_tiny_llama(tmp_path, **WIDE)
    prompts = [[token % 256 for token in prompt] for prompt in PROMPTS[:6]]
    params = replace(GREEDY, max_tokens=12)
    expected = texts(EngineCore(config(path)), prompts, params)
    victim, at = first_alone([*prompts, *expected], expected)
    weights = load_file(path / "model.safetensors")
    weights["model.embed_tokens.weight"][expected[victim][at]] = torch.nan
    save_file(weights, path / "model.safetensors")
    core = EngineCore(config(path))
    for turn in ("computed and captured", "replayed"):
        for number, prompt in enumerate(prompts):
            core.submit(Request(id=f"{turn} {number}", prompt=prompt, params=params))
        found: dict[str, list[int]] = {f"{turn} {number}": [] for number in range(len(prompts))}
        errors = {}
        while core.has_work:
            for event in core.step():
                found[event.request_id] += event.token_ids
                if event.error is not None:
                    errors[event.request_id] = event.error
        assert list(errors) == [f"{turn} {victim}"]
        assert "not a number" in errors[f"{turn} {victim}"]
        wanted = [text[: at + 1] if number == victim else text for number, text in enumerate(expected)]
        assert list(found.values()) == wanted
    core.check()


def first_alone(everything: list[list[int]], answers: list[list[int]]) -> tuple[int, int]:
    """Which answer has a token, and where, that is nowhere else; neither its first nor its last."""
    seen = Counter(token for tokens in everything for token in tokens)
    return next(
        (number, at)
        for number, answer in enumerate(answers)
        for at, token in enumerate(answer[:-1])
        if at and seen[token] == 1
    )


def test_closing_gives_the_gpus_memory_back(default_model: Path) -> None:
    def free() -> int:
        return torch.cuda.mem_get_info()[0]

    gc.collect()
    torch.cuda.empty_cache()
    before = free()
    with LLM(str(default_model), kv_cache_memory=4 << 30, max_model_len=1024) as llm:
        llm.generate([[1, 2, 3]], GREEDY, progress=False)
        assert free() < before - (4 << 30)
    # What stays is the driver's own: kernels, and workspaces of its libraries.
    assert free() > before - (1 << 30)


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
