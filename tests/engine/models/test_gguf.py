"""Llamas from GGUF files, written here as llama.cpp's converter writes them, against transformers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from penstock.engine.models.weights import open_weights
from penstock.errors import ModelError
from tests.engine.models.forward import all_logits
from tests.engine.models.loading import load_decoder
from tests.engine.models.test_llama import VARIANTS, make_llama, prompts_of, reference_logits

CPU = torch.device("cpu")
# Rows of 64 elements, so that the types that pack 32 together can hold them.
WIDE: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name.replace("model.layers.", "blk.")


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rotary halves to pairs, as the converter permutes query and key."""
    return (
        rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
        .swapaxes(1, 2)
        .reshape(rows.shape)
    )


def write_gguf(
    path: Path,
    model: Any,
    kind: gguf.GGMLQuantizationType,
    *,
    rope_factors: np.ndarray | None = None,
    **extra: Any,
) -> dict[str, torch.Tensor]:
    """Write the model; returns its weights as they are after the quantization, for the reference."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    for key, value in extra.items():
        writer.add_key_value(key.replace("__", "."), value, gguf.GGUFValueType.get_type(value))
    kept = {}
    for name, tensor in model.state_dict().items():
        rows = tensor.numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        for part, count in heads.items():
            if part in name:
                rows = interleaved(rows, count)
        stored = kind if rows.ndim == 2 else gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(rows, stored)
        writer.add_tensor(gguf_name(name), data, raw_dtype=stored)
        values = gguf.quants.dequantize(data, stored).reshape(rows.shape)
        for part, count in heads.items():
            if part in name:
                dim = values.shape[0] // count
                values = values.reshape(count, dim // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)
        kept[name] = torch.from_numpy(values.copy())
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", rope_factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return kept


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1"])
def test_logits_equal_those_of_transformers_with_the_same_weights(kind: str, tmp_path: Path) -> None:
    reference = make_llama(tmp_path / "folder", **WIDE)
    file = tmp_path / "model.gguf"
    kept = write_gguf(file, reference, gguf.GGMLQuantizationType[kind])
    reference.load_state_dict(kept)
    model, quantization = load_decoder(file, CPU, "float32")
    assert quantization == ("none" if kind in ("F32", "F16", "BF16") else kind)
    prompts = prompts_of(5, 150)
    for got, wanted in zip(all_logits(model, prompts, 40), reference_logits(reference, prompts), strict=True):
        assert (got - wanted).abs().max() <= 1e-4


def test_the_rope_factors_of_llama_3_are_obeyed(tmp_path: Path) -> None:
    """The converter writes llama 3's scaling as a tensor of divisors instead of as metadata."""
    rope = VARIANTS["llama 3 rope"]["rope_parameters"]
    reference = make_llama(tmp_path / "folder", **WIDE, rope_parameters=rope)
    dim = WIDE["hidden_size"] // WIDE["num_attention_heads"]
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    factors = []
    for frequency in rope["rope_theta"] ** -(np.arange(0, dim, 2) / dim):
        wavelength = 2 * math.pi / frequency
        if wavelength < high:
            factors.append(1.0)
        elif wavelength > low:
            factors.append(rope["factor"])
        else:
            smooth = (rope["original_max_position_embeddings"] / wavelength - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"]
            )
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    file = tmp_path / "model.gguf"
    write_gguf(
        file, reference, gguf.GGMLQuantizationType.F32, rope_factors=np.array(factors, dtype=np.float32)
    )
    prompts = prompts_of(200)
    model, _ = load_decoder(file, CPU, "float32")
    assert (all_logits(model, prompts, 64)[0] - reference_logits(reference, prompts)[0]).abs().max() <= 1e-4


def test_biases_are_found_by_their_tensors(tmp_path: Path) -> None:
    """The metadata does not mention them."""
    reference = make_llama(tmp_path / "folder", **WIDE, **VARIANTS["biases"])
    file = tmp_path / "model.gguf"
    write_gguf(file, reference, gguf.GGMLQuantizationType.F32)
    prompts = prompts_of(100)
    model, _ = load_decoder(file, CPU, "float32")
    assert (all_logits(model, prompts, 64)[0] - reference_logits(reference, prompts)[0]).abs().max() <= 1e-4


def test_linear_rope_scaling_is_read_from_the_metadata(tmp_path: Path) -> None:
    reference = make_llama(tmp_path / "folder", **WIDE, **VARIANTS["linear rope"])
    file = tmp_path / "model.gguf"
    scaling = {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 4.0}
    write_gguf(file, reference, gguf.GGMLQuantizationType.F32, **scaling)
    prompts = prompts_of(200)
    model, _ = load_decoder(file, CPU, "float32")
    assert (all_logits(model, prompts, 64)[0] - reference_logits(reference, prompts)[0]).abs().max() <= 1e-4


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"llama__expert_count": 8}, "'llama.expert_used_count' is missing"),
        ({"llama__rope__scaling__type": "yarn"}, "'llama.rope.scaling.factor' is missing"),
        ({"llama__rope__scaling__type": "mrope"}, "rope scaling 'mrope' is not known"),
        ({"llama__attention__key_length": 32, "llama__attention__value_length": 16}, "value_length is not"),
        ({"llama__attention__sliding_window": 0}, "'llama.attention.sliding_window' is 0"),
    ],
)
def test_what_the_llama_family_is_not_is_refused(extra: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write_gguf(file, make_llama(tmp_path / "folder", **WIDE), gguf.GGMLQuantizationType.F32, **extra)
    with pytest.raises(ModelError, match=message):
        open_weights(file)


def test_an_unknown_gguf_architecture_names_the_known_ones(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(file, "mamba")
    writer.add_tensor("x.weight", np.zeros((2, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"mamba .*knows llama, qwen2.*gateway"):
        open_weights(file)
