"""From files to a decoder on a GPU, one matrix at a time."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from penstock.engine.gpu.decoder import GpuDecoder, GpuLayer, Projection
from penstock.engine.gpu.kernels.skinny import skinny_rows
from penstock.engine.gpu.linear import Fp8Linear, GpuLinear
from penstock.engine.gpu.model import GpuModel
from penstock.engine.gpu.operations import FUSED, PLAIN
from penstock.engine.gpu.quantized import FP8, quantize_weight
from penstock.engine.layers.rotary import Rope, Rotary
from penstock.engine.models.config import LayerConfig
from penstock.engine.models.layout import Layout, Matrix
from penstock.engine.models.reading import DeviceReader
from penstock.engine.models.weights import Weights


def load_gpu(
    weights: Weights,
    device: torch.device,
    dtype: torch.dtype,
    *,
    fp8: bool,
    kv_fp8: bool,
    without: Collection[str],
) -> GpuModel:
    """`fp8`: matrices in eight bits, but for embedding and output matrix. `kv_fp8`: keys and values too."""
    decoder = _Loader(weights, device, dtype, fp8=fp8).decoder(without)
    precision = "fp8" if fp8 else str(dtype).removeprefix("torch.")
    return GpuModel(decoder, precision, torch.float8_e4m3fn if kv_fp8 else dtype, without)


class _Loader:
    def __init__(self, weights: Weights, device: torch.device, dtype: torch.dtype, *, fp8: bool) -> None:
        self._config = weights.config
        self._layout = Layout(weights.config, weights.architecture.tensors)
        self._device = device
        self._reader = DeviceReader(weights, device, dtype)
        self._fp8 = fp8

    def decoder(self, without: Collection[str]) -> GpuDecoder:
        config = self._config
        ropes = {layer.rope for layer in config.layers if layer.rope is not None}
        rotaries = {rope: Rotary(rope, self._device) for rope in ropes}
        embedding = self._reader.matrix(self._layout.embedding)
        few = skinny_rows(FP8 if self._fp8 else embedding.dtype)
        return GpuDecoder(
            config,
            embedding,
            [self._layer(index, layer, rotaries) for index, layer in enumerate(config.layers)],
            self._reader.norm("final_norm", None),
            self._head(embedding),
            PLAIN if "fused" in without else FUSED,
            skinny_rows=0 if {"skinny", "fused"} & set(without) else few,
        )

    def _head(self, embedding: Tensor) -> GpuLinear | None:
        if not self._config.has_head:
            return None
        return GpuLinear(
            embedding if self._config.tied_embeddings else self._reader.matrix(self._layout.head)
        )

    def _layer(self, index: int, layer: LayerConfig, rotaries: dict[Rope, Rotary]) -> GpuLayer:
        return GpuLayer(
            qkv=self._projection(self._layout.qkv, index),
            attention_output=self._projection(self._layout.attention_output, index),
            gate_up=self._projection(self._layout.gate_up, index),
            down=self._projection(self._layout.down, index),
            norms={name: self._reader.norm(name, index) for name in self._layout.norms(layer)},
            rotary=None if layer.rope is None else rotaries[layer.rope],
            window=layer.window,
        )

    def _projection(self, matrix: Matrix, layer: int) -> Projection:
        weight, bias = self._reader.matrix(matrix, layer), self._reader.bias(matrix, layer)
        return Fp8Linear(*quantize_weight(weight), bias) if self._fp8 else GpuLinear(weight, bias)
