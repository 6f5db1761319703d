"""Every architecture, with its switches in every position, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.models.registry import ARCHITECTURES
from penstock.engine.models.weights import open_weights
from penstock.engine.request import Request, SamplingParams
from tests.engine.models.families import (
    FAMILIES,
    LONG,
    TYPICAL,
    VOCAB,
    edit_config,
    make,
    prompts_of,
    read,
    reference_logits,
)
from tests.engine.models.forward import all_logits
from tests.engine.models.loading import load_decoder
from tests.engine.models.test_llama import DEVICES

VARIANTS = [(family, variant) for family, content in FAMILIES.items() for variant in content.variants]
CPU = torch.device("cpu")
SINGLY = (1, 1, 1, 1, 1, 1, 21)


def test_every_architecture_is_tested() -> None:
    assert {a.class_name for a in ARCHITECTURES} == {family.model for family in FAMILIES.values()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("family", "variant"), VARIANTS)
def test_logits_equal_those_of_transformers(family: str, variant: str, device: str, tmp_path: Path) -> None:
    """In chunks of one with some larger ones between them, of seven, and whole, all prompts together."""
    chosen = FAMILIES[family].variants[variant]
    reference = make(family, variant, tmp_path)
    model, _ = load_decoder(tmp_path, torch.device(device), "float32")
    prompts = prompts_of(chosen.lengths)
    wanted = reference_logits(reference, prompts)
    assert max(w.std() for w in wanted) > 0.3, "the logits must differ for the comparison to mean something"
    worst = 0.0
    for chunk in (SINGLY, 7, 300):
        for got, expected in zip(all_logits(model, prompts, chunk, chosen.positions), wanted, strict=True):
            worst = max(worst, float((got.cpu() - expected).abs().max()))
    print(f"DIFFERENCE | {family} | {variant} | {worst:.1e}")
    assert worst <= FAMILIES[family].tolerance


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_is_as_near_to_float32_as_that_of_transformers(
    family: str, device: str, tmp_path: Path
) -> None:
    exact = make(family, TYPICAL[family], tmp_path)
    rounded = read(tmp_path, torch.bfloat16)
    model, _ = load_decoder(tmp_path, torch.device(device), "bfloat16")
    prompts = prompts_of((33, 130))
    wanted = torch.cat(reference_logits(exact, prompts))
    theirs = (torch.cat(reference_logits(rounded, prompts)) - wanted).abs().mean()
    ours = (torch.cat(all_logits(model, prompts, 64)).cpu() - wanted).abs().mean()
    print(f"HALF | {family} | {ours:.3f} | {theirs:.3f} | {wanted.std():.3f}")
    # Rounding may choose another expert, which is not a small difference.
    assert ours <= (1.25 if model.config.experts is None else 2.0) * theirs


# config.json as files from before transformers 5 have it; `...` is a field they lack.
OLDER: dict[tuple[str, str], dict[str, Any]] = {
    ("llama", "yarn"): {
        "rope_parameters": ...,
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        "num_key_value_heads": 2,
        "head_dim": ...,
    },
    ("qwen2", "late windows"): {"layer_types": ..., "rope_parameters": ..., "rope_theta": 10000.0},
    ("qwen3_moe", "normalized"): {"num_local_experts": ..., "num_experts": 6},
    ("gemma2", "plain"): {
        "layer_types": ...,
        "tie_word_embeddings": ...,
        "rope_parameters": ...,
        "rope_theta": 10000.0,
    },
    ("gemma3", "five to one"): {
        "layer_types": ...,
        "sliding_window_pattern": 6,
        "rope_parameters": ...,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": None,
    },
    ("gemma3", "scaled rope"): {
        "rope_parameters": ...,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 5000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    ("phi3", "long rope"): {
        "rope_parameters": ...,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "type": "longrope",
            "short_factor": LONG["short_factor"],
            "long_factor": LONG["long_factor"],
        },
    },
    ("phi3", "window, part of a head"): {"rope_parameters": ..., "partial_rotary_factor": 0.5},
    ("smollm3", "every fourth"): {"layer_types": ..., "no_rope_layers": ..., "tie_word_embeddings": ...},
}


@pytest.mark.parametrize(("family", "variant"), OLDER)
def test_older_files_say_the_same_in_other_words(family: str, variant: str, tmp_path: Path) -> None:
    chosen = FAMILIES[family].variants[variant]
    reference = make(family, variant, tmp_path)
    edit_config(tmp_path, **OLDER[family, variant])
    prompts = prompts_of(chosen.lengths)
    model, _ = load_decoder(tmp_path, CPU, "float32")
    found = all_logits(model, prompts, 64, chosen.positions)
    for same in (reference, read(tmp_path)):
        for got, expected in zip(found, reference_logits(same, prompts), strict=True):
            assert (got - expected).abs().max() <= FAMILIES[family].tolerance


@pytest.mark.parametrize("name", ["su", "yarn"])
def test_phi_means_long_rope_by_its_older_names(name: str, tmp_path: Path) -> None:
    make("phi3", "long rope", tmp_path)
    wanted = open_weights(tmp_path).config
    edit_config(tmp_path, rope_parameters={**LONG, "rope_type": name})
    assert open_weights(tmp_path).config == wanted


@pytest.mark.parametrize(("family", "variant"), VARIANTS)
def test_a_row_of_logits_is_bitwise_the_same_alone_and_in_company(
    family: str, variant: str, tmp_path: Path
) -> None:
    chosen = FAMILIES[family].variants[variant]
    make(family, variant, tmp_path)
    model, _ = load_decoder(tmp_path, CPU, "auto")
    longest = max(chosen.lengths)
    prompts = prompts_of((longest, 3, longest // 2 + 1, longest - 1))
    together = all_logits(model, prompts, 40, chosen.positions)
    for prompt, in_company in zip(prompts, together, strict=True):
        for chunk in (16, 300):
            # A second prompt, because the runner too sees to it that no step has a single row.
            alone = all_logits(model, [prompt, prompt[:2]], chunk, chosen.positions)[0]
            assert torch.equal(alone, in_company), (len(prompt), chunk)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_answers_of_the_engine_equal_those_of_transformers(family: str, tmp_path: Path) -> None:
    """Prefixes shared and cached, prompts chunked, requests of all lengths mixed. Each token is what
    transformers finds likeliest after all tokens before it."""
    reference = make(family, TYPICAL[family], tmp_path)
    limits = {"kv_cache_memory": 1 << 22, "max_step_tokens": 48, "max_running": 4}
    engine = EngineCore(EngineConfig(model=str(tmp_path), precision="float32", **limits))
    prompts = mixed_prompts()
    answers = run(engine, prompts, SamplingParams(temperature=0.0, max_tokens=12))
    assert engine.stats().prefix_hits > 0
    assert engine.info.architecture == family
    assert engine.info.vocab_size == VOCAB
    for number, prompt in enumerate(prompts):
        answer = answers[f"{number}.0"]
        assert len(answer) == 12
        (logits,) = reference_logits(reference, [prompt + answer])
        assert answer == logits[len(prompt) - 1 : -1].argmax(dim=-1).tolist(), number


@pytest.mark.parametrize("family", ["mistral", "gemma3", "smollm3", "qwen3_moe"])
def test_answers_do_not_depend_on_how_the_engine_goes_about_them(family: str, tmp_path: Path) -> None:
    """Windows, ropes by layer, unmarked positions, experts: in other chunks and blocks, forked, preempted."""
    make(family, TYPICAL[family], tmp_path)
    params = SamplingParams(temperature=1.0, seed=5, n=2, max_tokens=20)
    block = open_weights(tmp_path).config.kv_bytes_per_token(4) * 16
    settings: list[dict[str, Any]] = [
        {"max_step_tokens": 300},
        {"max_step_tokens": 16, "max_running": 3},
        {"block_size": 4},
        {"kv_cache_memory": 33 * block, "max_running": 16},
        {"kv_cache_memory": 33 * block, "prefix_caching": False},
    ]
    found = []
    for options in settings:
        limits = {"kv_cache_memory": 400 * block, "max_model_len": 512, **options}
        engine = EngineCore(EngineConfig(model=str(tmp_path), device="cpu", **limits))
        found.append(run(engine, mixed_prompts(), params))
        assert (engine.stats().preemptions > 0) == (options.get("kv_cache_memory") is not None)
    assert len(set(map(tuple, found[0].values()))) > 15, "the model must not always say the same"
    for options, answers in zip(settings, found, strict=True):
        assert answers == found[0], options


def mixed_prompts() -> list[list[int]]:
    """Of all lengths, half of them with the same beginning."""
    shared, *others = prompts_of((70, 1, 20, 100, 150, 30))
    return [*others, *(shared + other for other in others)]


def run(engine: EngineCore, prompts: list[list[int]], params: SamplingParams) -> dict[str, list[int]]:
    """The tokens of every choice of every prompt, all submitted at once."""
    answers: dict[str, list[int]] = {}
    for number, prompt in enumerate(prompts):
        engine.submit(Request(id=str(number), prompt=prompt, params=params))
    while engine.has_work:
        for event in engine.step():
            assert event.error is None
            answers.setdefault(f"{event.request_id}.{event.index}", []).extend(event.token_ids)
    engine.check()
    return answers
