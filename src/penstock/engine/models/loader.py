"""From files to a decoder on its device, one tensor at a time."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from penstock.engine.kernels.linear import Linear
from penstock.engine.layers.rotary import Rotary
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.decoder import Decoder, DecoderLayer
from penstock.engine.models.weights import Weights, open_weights
from penstock.errors import ConfigError, ModelError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_dtype(name: str, stored: torch.dtype, device: torch.device) -> torch.dtype:
    """ "auto" is float32 on the CPU (exact, and its fastest), else what the file holds."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" or stored == torch.float64 else stored
    if name not in DTYPES:
        raise ConfigError(f"dtype must be auto, {', '.join(DTYPES)}; got {name!r}.")
    return DTYPES[name]


def load_decoder(path: str | Path, device: torch.device, dtype: str) -> tuple[Decoder, str]:
    """The decoder, and how its weights were stored."""
    weights = open_weights(path)
    config = weights.config
    fill = _Filler(weights, device, choose_dtype(dtype, weights.dtype, device))
    embedding = fill.stack(["embedding"], [config.vocab_size], config.hidden_size)
    head = embedding if weights.tied else fill.stack(["head"], [config.vocab_size], config.hidden_size)
    layers = [_load_layer(fill, config, index) for index in range(config.num_layers)]
    factors = weights.rope_factors()
    if factors is not None and factors.shape != (config.head_dim // 2,):
        raise ModelError(
            f"The file's rope factors have shape {tuple(factors.shape)}, not ({config.head_dim // 2},)."
        )
    rotary = Rotary(config.head_dim, config.rope_theta, config.rope_scaling, factors, device)
    decoder = Decoder(config, embedding, layers, fill.vector("final_norm"), Linear(head), rotary)
    unread = weights.unread()
    if unread:
        # They would change the answers of the model they belong to.
        raise ModelError(
            f"{path} holds {len(unread)} tensors that a {config.architecture} so described has no place for, "
            f"first {unread[0]!r}."
        )
    return decoder, weights.quantization


def _load_layer(fill: _Filler, config: DecoderConfig, index: int) -> DecoderLayer:
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    attention, mlp = config.attention_bias, config.mlp_bias
    return DecoderLayer(
        attention_norm=fill.vector("attention_norm", index),
        qkv=fill.linear(["query", "key", "value"], [query, key, key], hidden, index, bias=attention),
        attention_output=fill.linear(["attention_output"], [hidden], query, index, bias=attention),
        mlp_norm=fill.vector("mlp_norm", index),
        gate_up=fill.linear(["gate", "up"], [inner, inner], hidden, index, bias=mlp),
        down=fill.linear(["down"], [hidden], inner, index, bias=mlp),
    )


class _Filler:
    """Reads tensors straight into their final place, fused where the decoder wants them fused."""

    def __init__(self, weights: Weights, device: torch.device, dtype: torch.dtype) -> None:
        self._weights = weights
        self._device = device
        self._dtype = dtype

    def stack(self, names: list[str], rows: list[int], columns: int, layer: int | None = None) -> Tensor:
        # Before anything is allocated: the configuration may ask for more than any machine has.
        for name, count in zip(names, rows, strict=True):
            self._check(name, layer, (count, columns))
        target = torch.empty((sum(rows), columns), dtype=self._dtype, device=self._device)
        for name, part in zip(names, target.split(rows), strict=True):
            part.copy_(self._weights.read(name, layer))
        return target

    def linear(self, names: list[str], rows: list[int], columns: int, layer: int, *, bias: bool) -> Linear:
        weight = self.stack(names, rows, columns, layer)
        if not bias:
            return Linear(weight)
        parts = []
        for name, count in zip(names, rows, strict=True):
            self._check(name, layer, (count,), bias=True)
            parts.append(self._weights.read(name, layer, bias=True))
        return Linear(weight, torch.cat(parts).to(self._device, self._dtype))

    def vector(self, name: str, layer: int | None = None) -> Tensor:
        self._check(name, layer, (self._weights.config.hidden_size,))
        return self._weights.read(name, layer).to(self._device, self._dtype)

    def _check(self, name: str, layer: int | None, wanted: tuple[int, ...], *, bias: bool = False) -> None:
        shape = self._weights.shape(name, layer, bias=bias)
        if shape != wanted:
            where = "" if layer is None else f" of layer {layer}"
            raise ModelError(f"The {name}{where} has shape {shape}, but the configuration asks for {wanted}.")
