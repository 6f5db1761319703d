"""Descriptions of released models are understood as transformers understands them, weights apart."""

from __future__ import annotations

import copy
import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.engine.layers.rotary import frequencies
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields
from penstock.engine.models.registry import ARCHITECTURES, by_class_names
from penstock.engine.models.weights import read_config
from tests.engine.models.released import RELEASED

transformers = pytest.importorskip("transformers")


def ours(name: str) -> DecoderConfig:
    described = copy.deepcopy(RELEASED[name])
    return read_config(by_class_names(described["architectures"]), Fields(described), Path(name))


def theirs(name: str) -> Any:
    described = copy.deepcopy(RELEASED[name])
    kind = described.pop("model_type")
    return transformers.AutoConfig.for_model(kind, **described)


def test_every_architecture_has_a_released_model() -> None:
    found = {described["architectures"][0] for described in RELEASED.values()}
    assert found == {architecture.class_name for architecture in ARCHITECTURES}


@pytest.mark.parametrize("name", RELEASED)
def test_sizes_and_switches_are_those_of_transformers(name: str) -> None:
    found, wanted = ours(name), theirs(name)
    assert (found.vocab_size, found.hidden_size) == (wanted.vocab_size, wanted.hidden_size)
    assert found.num_layers == wanted.num_hidden_layers
    assert found.num_kv_heads == wanted.num_key_value_heads
    size = getattr(wanted, "head_dim", None) or wanted.hidden_size // wanted.num_attention_heads
    assert found.head_dim == size
    assert found.norm_eps == wanted.rms_norm_eps
    assert found.tied_embeddings == wanted.tie_word_embeddings
    assert found.context_length == wanted.max_position_embeddings
    scalar = getattr(wanted, "query_pre_attn_scalar", size)
    assert found.attention_scale == getattr(wanted, "attention_multiplier", scalar**-0.5)
    assert found.attention_softcap == getattr(wanted, "attn_logit_softcapping", None)
    assert found.logits_softcap == getattr(wanted, "final_logit_softcapping", None)


@pytest.mark.parametrize("name", RELEASED)
def test_windows_are_those_of_transformers(name: str) -> None:
    found, wanted = ours(name), theirs(name)
    window = getattr(wanted, "sliding_window", None)
    types = getattr(wanted, "layer_types", None) or ["sliding_attention"] * wanted.num_hidden_layers
    assert [layer.window for layer in found.layers] == [
        window if kind == "sliding_attention" else None for kind in types
    ]


@pytest.mark.parametrize("name", RELEASED)
def test_rotation_is_that_of_transformers(name: str) -> None:
    """For sequences up to the context: the long form of Phi's, and the only form of others."""
    found, wanted = ours(name), theirs(name)
    family = RELEASED[name]["model_type"].removesuffix("_text")
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    class_name = RELEASED[name]["architectures"][0].replace("ForCausalLM", "RotaryEmbedding")
    rotary = getattr(module, class_name)(wanted)
    nested = "full_attention" in wanted.rope_parameters
    for layer, window in {(layer.rope, layer.window) for layer in found.layers if layer.rope is not None}:
        kind = "sliding_attention" if window else "full_attention"
        length = found.context_length
        position = torch.tensor([[1, length - 1]])
        args = (kind,) if nested else ()
        cos, _ = rotary(torch.zeros(1), position, *args)
        table = torch.outer(position[0].float(), frequencies(layer, length))
        half = (table.cos() * layer.attention_factor)[:1]
        # The second position only tells transformers how long the sequence is.
        assert torch.allclose(cos[0, :1, : half.shape[1]], half, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "longest"),
    [
        ("Llama 3.1 8B", 131072),
        ("Vicuna 7B 16k", 16384),
        ("Qwen 2.5 7B", 32768),
        ("Qwen 2.5 7B, stretched as its card says", 131072),
        ("Gemma 3 1B", 32768),
        ("Phi 4 mini", 131072),
    ],
)
def test_a_stretched_context_may_be_asked_for(name: str, longest: int) -> None:
    assert ours(name).longest_context == longest
