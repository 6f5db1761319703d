"""Native models made by hand, of which one part is looked at and the rest does nothing."""

from __future__ import annotations

import numpy as np
import torch

from penstock.engine.kernels.activation import Activation
from penstock.engine.models.config import DecoderConfig, LayerConfig
from penstock.engine.native.model import NativeLayer, NativeModel, Packed, pack
from penstock.engine.native.quantized import Quantized
from penstock.engine.run.step import Room


def zeros(rows: int, columns: int) -> Quantized:
    groups = -(-columns // 32)
    return Quantized(
        np.zeros((rows, groups * 32), dtype=np.uint8),
        np.zeros((rows, groups), dtype=np.float16),
        np.zeros((rows, groups), dtype=np.float16),
        columns,
        8,
    )


def random_small(rows: int, columns: int, bits: int, *, scale: float = 1.0) -> Quantized:
    rng = np.random.default_rng([rows, columns, bits])
    groups = -(-columns // 32)
    values = rng.integers(0, 2**bits, (rows, groups * 32), dtype=np.uint8)
    values[:, columns:] = 0
    d, m = (rng.normal(size=(rows, groups)).astype(np.float16) for _ in range(2))
    return Quantized(values, d, m, columns, bits, scale)


def _config(vocab: int, hidden: int, inner: int, layers: int, activation: Activation) -> DecoderConfig:
    return DecoderConfig(
        architecture="made by hand",
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inner,
        num_heads=1,
        num_kv_heads=1,
        head_dim=4,
        context_length=64,
        longest_context=64,
        norm_eps=1e-6,
        layers=(LayerConfig(rope=None),) * layers,
        attention_scale=1.0,
        activation=activation,
    )


def head_alone(head: Packed, norm: torch.Tensor, threads: int = 1) -> NativeModel:
    """No layers: logits are the norm and one matrix."""
    hidden = head.inputs
    config = _config(head.outputs, hidden, 1, 0, "silu")
    model = NativeModel(config, pack(zeros(1, hidden)), [], norm, head, threads)
    model.open(Room(1, 16, 16, 64))
    return model


def mlp_alone(
    embedding: Quantized, gate_up: Packed, down: Quantized, activation: Activation, threads: int = 1
) -> NativeModel:
    """One layer without norms, whose attention adds nothing."""
    hidden, inner = down.scales.shape[0], down.columns
    layer = NativeLayer(
        qkv=pack(zeros(12, hidden)),
        attention_output=pack(zeros(hidden, 4)),
        gate_up=gate_up,
        down=pack(down),
        norms={},
        rotary=None,
        window=None,
    )
    config = _config(embedding.scales.shape[0], hidden, inner, 1, activation)
    return NativeModel(config, pack(embedding), [layer], torch.ones(hidden), None, threads)
