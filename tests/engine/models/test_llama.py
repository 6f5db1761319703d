"""The llama family against transformers, which is the reference."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.models.forward import all_logits
from tests.engine.models.loading import load_decoder

transformers = pytest.importorskip("transformers")

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
        ],
    ),
]
SMALL: dict[str, Any] = {
    "vocab_size": 199,
    "hidden_size": 48,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.2,  # large enough for logits that differ
}
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped heads": {},
    "one KV head": {"num_key_value_heads": 1},
    "as many KV heads": {"num_key_value_heads": 6},
    "tied embeddings": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "own head size": {"head_dim": 16},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
    "llama 3 rope": {
        "rope_parameters": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 500000.0,
        }
    },
}


def make_llama(path: Path, **overrides: Any) -> Any:
    """A small random llama, saved as its users would save it; returns transformers' own."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SMALL, **overrides})).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.normal_(mean=0.5, std=0.2)
    model.save_pretrained(path)
    return model


def reference_logits(model: Any, prompts: list[list[int]]) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model(torch.tensor([prompt])).logits[0] for prompt in prompts]


def prompts_of(*lengths: int, vocab: int = SMALL["vocab_size"]) -> list[list[int]]:
    rng = random.Random(1)
    return [[rng.randrange(vocab) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_those_of_transformers(variant: str, device: str, tmp_path: Path) -> None:
    reference = make_llama(tmp_path, **VARIANTS[variant])
    model, quantization = load_decoder(tmp_path, torch.device(device), "float32")
    assert quantization == "none"
    prompts = prompts_of(1, 5, 33, 150, 290)
    for chunk in (1, 7, 300):
        for got, wanted in zip(
            all_logits(model, prompts, chunk), reference_logits(reference, prompts), strict=True
        ):
            assert (got.cpu() - wanted).abs().max() <= 1e-4


def test_sharded_files_load_like_one(tmp_path: Path) -> None:
    reference = make_llama(tmp_path / "whole")
    reference.save_pretrained(tmp_path / "shards", max_shard_size="50KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 3
    prompts = prompts_of(40)
    logits = [
        all_logits(load_decoder(tmp_path / name, torch.device("cpu"), "float32")[0], prompts, 40)[0]
        for name in ("whole", "shards")
    ]
    assert torch.equal(*logits)


def test_half_precision_files_can_be_computed_in_float32(tmp_path: Path) -> None:
    make_llama(tmp_path / "float32").to(torch.bfloat16).save_pretrained(tmp_path / "half")
    model, _ = load_decoder(tmp_path / "half", torch.device("cpu"), "float32")
    assert model.dtype == torch.float32
    prompts = prompts_of(40)
    # Read again: turned to bfloat16 in place, a model has rounded rotary frequencies; the file has not.
    reference = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "half", dtype=torch.float32)
    wanted = reference_logits(reference, prompts)[0]
    assert (all_logits(model, prompts, 40)[0] - wanted).abs().max() <= 1e-4


def test_a_row_of_logits_is_bitwise_the_same_alone_and_in_company(tmp_path: Path) -> None:
    make_llama(tmp_path)
    model, _ = load_decoder(tmp_path, torch.device("cpu"), "auto")
    prompts = prompts_of(140, 3, 77, 129, 256, 31, 290, 64)
    together = all_logits(model, prompts, 40)
    for prompt, in_company in zip(prompts, together, strict=True):
        for chunk in (16, 64, 300):
            # A second prompt, because the runner too sees to it that no step has a single row.
            alone = all_logits(model, [prompt, prompt[:2]], chunk)[0]
            assert torch.equal(alone, in_company), (len(prompt), chunk)
