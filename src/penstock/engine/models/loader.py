"""From files to a decoder on its device, one tensor at a time."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import Tensor

from penstock.engine.kernels.activation import ACTIVATIONS
from penstock.engine.kernels.linear import Linear
from penstock.engine.layers.experts import Experts
from penstock.engine.layers.mlp import GatedMLP
from penstock.engine.layers.norm import HeadNorm, Norm, ProjectionNorm
from penstock.engine.layers.rotary import Rope, Rotary
from penstock.engine.models import layout
from penstock.engine.models.checking import check_shapes
from penstock.engine.models.config import LayerConfig
from penstock.engine.models.decoder import Decoder, DecoderLayer
from penstock.engine.models.layout import Layout, Matrix
from penstock.engine.models.random_weights import RandomWeights
from penstock.engine.models.reading import DeviceReader
from penstock.engine.models.tensors import choose_dtype
from penstock.engine.models.weights import Weights, open_weights
from penstock.errors import ModelError

logger = logging.getLogger("penstock.engine")


def checked_weights(
    path: str | Path, *, generates: bool = True, random_on: torch.device | None = None
) -> Weights:
    """Raise ModelError unless they are of a decoder. `generates`: without an output matrix it is no use.

    `random_on`: a device to make weights on, of the model's shapes; None reads the files.
    """
    weights = open_weights(path) if random_on is None else RandomWeights(Path(path), random_on)
    # Before anything is allocated: the description may ask for more than any machine has.
    check_tensors(weights)
    if generates and not weights.config.has_head:
        raise ModelError(
            f"{path} has no output matrix, so it cannot generate, only give vectors, and nothing says how "
            "to make them; give --pooling last or mean."
        )
    _warn_of_another_head(weights)
    return weights


def build_decoder(weights: Weights, device: torch.device, dtype: str) -> Decoder:
    return _Loader(weights, device, choose_dtype(dtype, weights.dtype, device)).decoder()


def _warn_of_another_head(weights: Weights) -> None:
    """Some files hold a second copy of tied weights. If it is no copy, somebody should know."""
    head = layout.Tensor("head")
    stored = weights.place(head).stored
    if not weights.config.tied_embeddings or stored not in weights.shapes:
        return
    embedding, copy = weights.read(layout.Tensor("embedding")), weights.read(head)
    if copy.shape != embedding.shape or not torch.equal(copy.to(embedding), embedding):
        logger.warning(
            "%s says that its embedding is its output matrix too, but holds another one, %r; "
            "it is not used. If it should be, set tie_word_embeddings to false in config.json.",
            weights.path,
            stored,
        )


def check_tensors(weights: Weights) -> None:
    """Raise ModelError unless the file has exactly the tensors that its description asks for."""
    experts = weights.config.experts
    expected: dict[str, tuple[int, ...]] = {}
    for tensor, shape in Layout(weights.config, weights.architecture.tensors).tensors():
        place = weights.place(tensor)
        whole = shape if place.index is None or experts is None else (experts.count, *shape)
        expected[place.stored] = whole
    # A second copy of tied weights.
    spare = (weights.place(layout.Tensor("head")).stored,) if weights.config.tied_embeddings else ()
    check_shapes(weights.path, weights.architecture.name, expected, weights.shapes, spare)


class _Loader:
    def __init__(self, weights: Weights, device: torch.device, dtype: torch.dtype) -> None:
        self._config = weights.config
        self._layout = Layout(weights.config, weights.architecture.tensors)
        self._device = device
        self._reader = DeviceReader(weights, device, dtype)

    def decoder(self) -> Decoder:
        ropes = {layer.rope for layer in self._config.layers if layer.rope is not None}
        rotaries = {rope: Rotary(rope, self._device) for rope in ropes}
        embedding = self._reader.matrix(self._layout.embedding)
        return Decoder(
            self._config,
            embedding,
            [self._layer(index, layer, rotaries) for index, layer in enumerate(self._config.layers)],
            self._norm("final_norm"),
            self._head(embedding),
            list(rotaries.values()),
        )

    def _head(self, embedding: Tensor) -> Linear | None:
        if not self._config.has_head:
            return None
        return Linear(embedding if self._config.tied_embeddings else self._reader.matrix(self._layout.head))

    def _layer(self, index: int, layer: LayerConfig, rotaries: dict[Rope, Rotary]) -> DecoderLayer:
        names = self._layout.norms(layer)
        norms = {
            name: self._norm(name, index)
            for name in ("attention_norm", "attention_post_norm", "mlp_norm", "mlp_post_norm")
            if name in names
        }
        return DecoderLayer(
            **norms,
            qkv=self._linear(self._layout.qkv, index),
            query_key_norm=self._query_key_norm(index),
            attention_output=self._linear(self._layout.attention_output, index),
            mlp=self._experts(index) if layer.experts else self._mlp(index),
            rotary=None if layer.rope is None else rotaries[layer.rope],
            window=layer.window,
        )

    def _query_key_norm(self, index: int) -> HeadNorm | ProjectionNorm | None:
        config = self._config
        if config.query_key_norm is None:
            return None
        query, key = self._reader.norm("query_norm", index), self._reader.norm("key_norm", index)
        if config.query_key_norm == "head":
            return HeadNorm(query, key, config.num_heads, config.num_kv_heads, config.norm_eps)
        return ProjectionNorm(query, key, config.num_heads, config.norm_eps)

    def _mlp(self, index: int) -> GatedMLP:
        gate_up, down = self._layout.gate_up, self._layout.down
        return self._gated(gate_up, down, index, None)

    def _experts(self, index: int) -> Experts:
        config = self._config.experts
        assert config is not None
        gate_up, down = self._layout.expert_gate_up, self._layout.expert_down
        return Experts(
            self._linear(self._layout.router, index),
            [self._gated(gate_up, down, index, expert) for expert in range(config.count)],
            config.per_token,
            normalized=config.normalized,
        )

    def _gated(self, gate_up: Matrix, down: Matrix, index: int, expert: int | None) -> GatedMLP:
        return GatedMLP(
            self._linear(gate_up, index, expert),
            self._linear(down, index, expert),
            ACTIVATIONS[self._config.activation],
        )

    def _linear(self, matrix: Matrix, layer: int, expert: int | None = None) -> Linear:
        return Linear(self._reader.matrix(matrix, layer, expert), self._reader.bias(matrix, layer, expert))

    def _norm(self, name: str, layer: int | None = None) -> Norm:
        return Norm(self._reader.norm(name, layer), self._config.norm_eps)
