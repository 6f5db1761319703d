"""A step in C computes what the same integers give in torch, in whatever company and pieces."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from penstock.engine.config import EngineConfig
from penstock.engine.run.loading import load_model
from penstock.engine.run.step import StepModel
from penstock.errors import ConfigError
from tests.engine.models.families import FAMILIES, TYPICAL, VOCAB, make, prompts_of
from tests.engine.models.forward import all_logits
from tests.engine.models.gguf_files import write_gguf
from tests.engine.native.kernels import needs_kernels
from tests.engine.native.small import small_arithmetic, through_small
from tests.engine.native.stepping import Stepper, step_logits

pytestmark = needs_kernels
CPU = torch.device("cpu")
LONGEST = 130  # tokens: beyond the widest window
MIXTURES = ("mixtral", "qwen3_moe")
DENSE = [
    (family, variant)
    for family, chosen in FAMILIES.items()
    if family not in MIXTURES
    for variant in chosen.variants
]


def native(path: Path, threads: int = 1) -> StepModel:
    model, _ = load_model(EngineConfig(model=str(path), precision="int8", threads=threads), CPU)
    assert model.precision == "int8"
    return model


def assert_same_arithmetic(
    path: Path,
    prompts: list[list[int]],
    positions: int | None = None,
    weights: Callable[[Tensor], Tensor] = through_small,
) -> None:
    """Equal to float rounding, but where an activation lay between two integers and was rounded to the
    other one: that and what follows from it is a fraction of what int8 itself costs."""
    found = torch.cat(step_logits(native(path), prompts, 300, positions))
    with small_arithmetic(path, weights) as reference:
        wanted = torch.cat(all_logits(reference, prompts, 300, positions))
    error = (found - wanted).abs() / wanted.std()
    by_row = error.amax(dim=-1)
    assert float(by_row.quantile(0.2)) < 1e-5
    assert float(error.mean()) < 0.01


@pytest.mark.parametrize(("family", "variant"), DENSE, ids=[f"{f}, {v}" for f, v in DENSE])
def test_every_architecture_computes_what_the_same_integers_give_in_torch(
    family: str, variant: str, tmp_path: Path
) -> None:
    make(family, variant, tmp_path)
    positions = FAMILIES[family].variants[variant].positions
    longest = min(LONGEST, positions or LONGEST)
    assert_same_arithmetic(tmp_path, prompts_of((1, 5, 33, longest)), positions)


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q8_0", "F16"])
def test_a_gguf_files_integers_are_computed_with_as_they_are(kind: str, tmp_path: Path) -> None:
    reference = make("llama", "plain", hidden_size=64, intermediate_size=96)
    file = write_gguf(tmp_path / "model.gguf", "llama", reference, kind=kind)
    weights = through_small if kind == "F16" else Tensor.clone
    assert_same_arithmetic(file, prompts_of((1, 5, 33)), weights=weights)


@pytest.mark.usefixtures("variant")
@pytest.mark.parametrize(
    ("family", "overrides"),
    [
        ("llama", {}),
        # More heads on one key head than are computed at once, a head that is no multiple of the lanes.
        ("llama", {"num_attention_heads": 16, "num_key_value_heads": 1, "head_dim": 20}),
        ("qwen3", {"head_dim": 80}),  # wider than what attention sums at once
        ("mistral", {}),
        ("gemma2", {}),
        ("olmo2", {}),
    ],
)
def test_company_chunks_threads_and_blocks_change_no_bit(
    family: str, overrides: dict[str, int], tmp_path: Path
) -> None:
    make(family, TYPICAL[family], tmp_path, **overrides)
    prompts = prompts_of((1, 5, 33, 130))
    whole = step_logits(native(tmp_path), prompts, 300)
    for threads, chunk, block_size in ((2, 300, 16), (3, 50, 32), (1, 7, 4), (1, 1, 1), (1, 33, 128)):
        found = step_logits(native(tmp_path, threads), prompts, chunk, block_size=block_size)
        assert all(map(torch.equal, found, whole)), (threads, chunk, block_size)
    for prompt, expected in zip(prompts, whole, strict=True):
        (found,) = step_logits(native(tmp_path), [prompt], 64)
        assert torch.equal(found, expected)


@pytest.mark.usefixtures("variant")
def test_what_is_not_a_number_stays_in_its_own_sequence(tmp_path: Path) -> None:
    model = make("mistral", "window")
    poison = VOCAB - 1
    prompts = [[token % poison for token in prompt] for prompt in prompts_of((40, 33, 60))]
    model.save_pretrained(tmp_path)
    expected = step_logits(native(tmp_path), prompts, 7)
    with torch.no_grad():
        model.get_input_embeddings().weight[poison] = torch.nan
    model.save_pretrained(tmp_path)
    for place, threads in ((0, 1), (20, 2), (32, 1)):
        sick = [prompts[0], [*prompts[1][:place], poison, *prompts[1][place + 1 :]], prompts[2]]
        found = step_logits(native(tmp_path, threads), sick, 7)
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[2], expected[2])
        # What came before it is well, even in the same step.
        assert torch.equal(found[1][:place], expected[1][:place])
        assert found[1][place:].isnan().all()


@pytest.mark.usefixtures("variant")
def test_blocks_that_hold_what_is_not_a_number_may_be_used_again(tmp_path: Path) -> None:
    make("llama", "plain", tmp_path)
    (prompt,) = prompts_of((33,))
    (expected,) = step_logits(native(tmp_path), [prompt], 64)
    model = native(tmp_path)
    stepper = Stepper(model, [prompt], 64)
    # The cache of the layers, as a former owner left it.
    vars(model)["_cache"].fill_(torch.nan)
    for start, count in ((0, 5), (5, 11), (16, 17)):
        (hidden,) = stepper.step([(0, start, count)])
        assert torch.equal(model.logits(hidden), expected[start : start + count])


@pytest.mark.usefixtures("variant")
def test_huge_keys_and_values_stay_within_half_precision(tmp_path: Path) -> None:
    model = make("llama", "plain")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.v_proj.weight *= 1e6
            layer.self_attn.k_proj.weight *= 1e6
    model.save_pretrained(tmp_path)
    (found,) = step_logits(native(tmp_path), prompts_of((40,)), 16)
    assert found.isfinite().all()


@pytest.mark.parametrize("family", MIXTURES)
def test_mixtures_are_refused_for_int8_and_computed_in_floats_otherwise(
    family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(family, TYPICAL[family], tmp_path)
    with pytest.raises(ConfigError, match=r"precision is int8, but mixtures of experts .* Ask for auto"):
        load_model(EngineConfig(model=str(tmp_path), precision="int8"), CPU)
    with caplog.at_level(logging.WARNING, logger="penstock.engine"):
        model, _ = load_model(EngineConfig(model=str(tmp_path), precision="auto"), CPU)
    assert model.precision == "float32"
    assert "mixtures of experts are computed in floating point only" in caplog.text
    assert step_logits(model, [[1, 2, 3]], 3)[0].isfinite().all()
