"""Every architecture from GGUF files, against the model the file was made of and transformers' reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penstock.errors import ModelError
from tests.engine.models.families import FAMILIES, WINDOW, make, prompts_of, read, reference_logits
from tests.engine.models.forward import all_logits
from tests.engine.models.gguf_files import ARCHITECTURES, write_gguf
from tests.engine.models.loading import load_decoder

CPU = torch.device("cpu")
# Settings that a file can say, or that hold for all files of a family: where transformers' reader knows
# the family, they are also such as it assumes (256 for Gemma's heads, 128 for Qwen's).
FILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", "plain", {}),
    "llama, tied": ("llama", "plain", {"tie_word_embeddings": True}),
    "llama, biases": ("llama", "plain", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("mistral", "window", {}),
    "mixtral": ("mixtral", "two of four", {"rms_norm_eps": 1e-5}),
    "qwen2": ("qwen2", "plain", {}),
    "qwen3": ("qwen3", "own head size", {"head_dim": 128}),
    "qwen3_moe": ("qwen3_moe", "normalized", {}),
    "gemma2": ("gemma2", "plain", {"head_dim": 256, "query_pre_attn_scalar": 256}),
    "gemma2, low caps": (
        "gemma2",
        "low caps",
        {"head_dim": 256, "query_pre_attn_scalar": 256, "attention_bias": False},
    ),
    "gemma3": ("gemma3", "five to one", {"head_dim": 256, "query_pre_attn_scalar": 256}),
    "phi3": ("phi3", "plain", {}),
    "phi3, window and part of a head": ("phi3", "window, part of a head", {}),
    "olmo2": ("olmo2", "plain", {}),
    "granite": ("granite", "multipliers", {}),
    "granite, tied": ("granite", "biases, tied", {}),
    "smollm3": ("smollm3", "every fourth", {}),
}
# What transformers reads itself, and reads all of: not caps, windows or partial rotation.
READ_BY_TRANSFORMERS = ["llama", "llama, tied", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3", "phi3"]
LENGTHS = (1, 33, 200)


def difference(
    model: Any, reference: Any, lengths: tuple[int, ...] = LENGTHS, positions: int | None = None
) -> float:
    prompts = prompts_of(lengths)
    pairs = zip(all_logits(model, prompts, 40, positions), reference_logits(reference, prompts), strict=True)
    return max(float((got - wanted).abs().max()) for got, wanted in pairs)


def test_every_family_has_its_file() -> None:
    assert {family for family, *_ in FILES.values()} == set(ARCHITECTURES) == set(FAMILIES)


@pytest.mark.parametrize("name", FILES)
def test_logits_equal_those_of_the_model_in_the_file(name: str, tmp_path: Path) -> None:
    family, variant, settings = FILES[name]
    reference = make(family, variant, **settings)
    file = write_gguf(tmp_path / "model.gguf", family, reference)
    model, quantization = load_decoder(file, CPU, "float32")
    assert quantization == "none"
    worst = difference(model, reference)
    print(f"DIFFERENCE | {name} | gguf | {worst:.1e}")
    assert worst <= FAMILIES[family].tolerance
    if name in READ_BY_TRANSFORMERS:
        theirs = read(tmp_path, gguf_file=file.name)
        assert type(theirs).__name__ == FAMILIES[family].model
        assert difference(model, theirs) <= FAMILIES[family].tolerance


def test_experts_stored_one_by_one_are_those_of_the_stack(tmp_path: Path) -> None:
    reference = make("mixtral", "two of four")
    files = [
        write_gguf(tmp_path / f"{stacked}.gguf", "mixtral", reference, stacked=stacked)
        for stacked in (True, False)
    ]
    prompts = prompts_of((50,))
    logits = [all_logits(load_decoder(file, CPU, "float32")[0], prompts, 50)[0] for file in files]
    assert torch.equal(*logits)


def test_one_expert_of_a_quantized_stack_is_read_at_a_time(tmp_path: Path) -> None:
    wide = {"hidden_size": 64, "moe_intermediate_size": 32, "intermediate_size": 64}
    reference = make("qwen3_moe", "normalized", **wide)
    file = write_gguf(tmp_path / "model.gguf", "qwen3_moe", reference, kind="Q8_0")
    model, quantization = load_decoder(file, CPU, "float32")
    assert quantization == "Q8_0"
    assert difference(model, read(tmp_path, gguf_file=file.name)) <= 1e-3
    assert model.weight_bytes > sum(p.nbytes for n, p in reference.named_parameters() if "experts" in n)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}


@pytest.mark.parametrize(
    ("rope", "metadata"),
    [
        (YARN, {}),
        (
            {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 0.9},
            {
                "rope.scaling.yarn_beta_fast": 16.0,
                "rope.scaling.yarn_beta_slow": 2.0,
                # Here it multiplies the usual factor, 0.1 ln 4 + 1.
                "rope.scaling.attn_factor": 0.9 / (0.1 * float(np.log(4.0)) + 1.0),
            },
        ),
    ],
)
def test_yarn_is_read_from_the_metadata(
    rope: dict[str, Any], metadata: dict[str, Any], tmp_path: Path
) -> None:
    reference = make("qwen2", "plain", rope_parameters=rope)
    scaling = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
               "rope.scaling.original_context_length": 64}  # fmt: skip
    file = write_gguf(tmp_path / "model.gguf", "qwen2", reference, metadata={**scaling, **metadata})
    model, _ = load_decoder(file, CPU, "float32")
    assert difference(model, reference) <= 1e-4


@pytest.mark.parametrize("attention_factor", [None, 1.3])
def test_long_rope_is_read_from_its_tensors(attention_factor: float | None, tmp_path: Path) -> None:
    variant = FAMILIES["phi3"].variants["long rope"]
    rope = {**variant.settings["rope_parameters"], "attention_factor": attention_factor}
    reference = make("phi3", "long rope", rope_parameters=rope)
    file = write_gguf(
        tmp_path / "model.gguf",
        "phi3",
        reference,
        metadata={"rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": attention_factor},
        tensors={
            "rope_factors_short.weight": np.array(rope["short_factor"]),
            "rope_factors_long.weight": np.array(rope["long_factor"]),
        },
    )
    model, _ = load_decoder(file, CPU, "float32")
    assert difference(model, reference, (65, 200), 512) <= 1e-4
    assert difference(model, reference, (1, 64), 64) <= 1e-4


def test_half_of_a_long_rope_is_refused(tmp_path: Path) -> None:
    reference = make("phi3", "plain")
    factors = {"rope_factors_long.weight": np.ones(6)}
    file = write_gguf(tmp_path / "model.gguf", "phi3", reference, tensors=factors)
    with pytest.raises(ModelError, match=r"'rope_factors_short\.weight' is missing"):
        load_decoder(file, CPU, "float32")


def test_gemma_3_scales_and_places_its_ropes_as_the_metadata_says(tmp_path: Path) -> None:
    reference = make("gemma3", "scaled rope", query_pre_attn_scalar=12, final_logit_softcapping=None)
    file = write_gguf(
        tmp_path / "model.gguf",
        "gemma3",
        reference,
        metadata={
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
            "rope.freq_base_swa": 5000.0,
            "attention.sliding_window_pattern": [True, False, True],
        },
    )
    model, _ = load_decoder(file, CPU, "float32")
    assert [layer.window for layer in model.config.layers] == [WINDOW, None, WINDOW]
    assert difference(model, reference) <= 1e-4


@pytest.mark.parametrize(("family", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_the_largest_gemmas_scale_attention_by_their_hidden_size(
    family: str, layers: int, tmp_path: Path
) -> None:
    small = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    variant = next(iter(FAMILIES[family].variants))
    reference = make(family, variant, **small, num_hidden_layers=layers, query_pre_attn_scalar=8, head_dim=4)
    model, _ = load_decoder(write_gguf(tmp_path / "model.gguf", family, reference), CPU, "float32")
    assert difference(model, reference, (40,)) <= 1e-4


def test_all_that_is_wrong_with_a_file_is_named_as_the_file_names_it(tmp_path: Path) -> None:
    file = write_gguf(
        tmp_path / "model.gguf",
        "qwen2",
        make("qwen2", "plain"),
        metadata={"block_count": None, "context_length": None, "attention.head_count": "four"},
    )
    with pytest.raises(ModelError) as error:
        load_decoder(file, CPU, "float32")
    for part in (
        "'qwen2.block_count' is missing",
        "'qwen2.context_length' is missing",
        "'qwen2.attention.head_count' is 'four', not an integer",
    ):
        assert part in str(error.value)


def test_a_stack_of_too_few_experts_is_named_once(tmp_path: Path) -> None:
    file = write_gguf(
        tmp_path / "model.gguf", "mixtral", make("mixtral", "two of four"), metadata={"expert_count": 5}
    )
    with pytest.raises(
        ModelError, match=r"'blk\.0-2\.ffn_gate_exps\.weight' \(3\) has \[4, 72, 48\] instead of \[5,"
    ) as error:
        load_decoder(file, CPU, "float32")
    assert str(error.value).count("ffn_gate_exps") == 1
