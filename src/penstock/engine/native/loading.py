"""From files to a native model, one matrix at a time."""

from __future__ import annotations

import torch
from torch import Tensor

from penstock.engine.layers.rotary import Rope, Rotary
from penstock.engine.models import layout
from penstock.engine.models.config import DecoderConfig, LayerConfig
from penstock.engine.models.layout import Layout, Matrix
from penstock.engine.models.tensors import norm_vector
from penstock.engine.models.weights import Weights
from penstock.engine.native.library import VARIABLE, choice, library
from penstock.engine.native.model import NativeLayer, NativeModel, Packed, pack
from penstock.engine.native.quantized import Quantized, from_floats, stacked


def why_not(config: DecoderConfig, device: torch.device) -> str | None:
    """Why this model cannot be computed in small integers here; None if it can."""
    if device.type != "cpu":
        return f"it is for the CPU, and the device is {device}"
    if choice() == "off":
        return f"{VARIABLE} is off"
    if library() is None:
        return (
            "the native kernels are not built, or not for this processor; `penstock doctor` says which, and "
            "`python -m penstock.engine.native.build` builds them where there is a C compiler"
        )
    if config.experts is not None:
        return "mixtures of experts are computed in floating point only"
    return None


def load_native(weights: Weights, threads: int) -> NativeModel:
    return _Loader(weights).model(threads)


class _Loader:
    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._config = weights.config
        self._layout = Layout(weights.config, weights.architecture.tensors)

    def model(self, threads: int) -> NativeModel:
        config = self._config
        ropes = {layer.rope for layer in config.layers if layer.rope is not None}
        rotaries = {rope: Rotary(rope, torch.device("cpu")) for rope in ropes}
        embedding = self._packed(self._layout.embedding)
        head = None
        if config.has_head:
            head = embedding if config.tied_embeddings else self._packed(self._layout.head)
        layers = [self._layer(index, layer, rotaries) for index, layer in enumerate(config.layers)]
        return NativeModel(config, embedding, layers, self._norm("final_norm", None), head, threads)

    def _layer(self, index: int, layer: LayerConfig, rotaries: dict[Rope, Rotary]) -> NativeLayer:
        return NativeLayer(
            qkv=self._packed(self._layout.qkv, index),
            attention_output=self._packed(self._layout.attention_output, index),
            gate_up=self._packed(self._layout.gate_up, index, gated=True),
            down=self._packed(self._layout.down, index),
            norms={name: self._norm(name, index) for name in self._layout.norms(layer)},
            rotary=None if layer.rope is None else rotaries[layer.rope],
            window=layer.window,
        )

    def _packed(self, matrix: Matrix, layer: int | None = None, *, gated: bool = False) -> Packed:
        bias = None
        if matrix.bias:
            names = [layout.Tensor(name, layer, bias=True) for name in matrix.names]
            bias = torch.cat([self._weights.read(name) for name in names])
        return pack(self._quantized(matrix, layer), bias, gated=gated)

    def _quantized(self, matrix: Matrix, layer: int | None) -> Quantized:
        names = [layout.Tensor(name, layer) for name in matrix.names]
        parts = [self._weights.quantized(name) for name in names]
        stored = [part for part in parts if part is not None]
        if len(stored) == len(parts) and len({part.scale for part in stored}) == 1:
            return stacked(stored)
        return from_floats(torch.cat([self._weights.read(name).float() for name in names]))

    def _norm(self, name: str, layer: int | None) -> Tensor:
        vector = self._weights.read(layout.Tensor(name, layer))
        return norm_vector(vector, self._config.norm_weights_from_one).float()
