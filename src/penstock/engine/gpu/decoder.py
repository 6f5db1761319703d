"""The decoder on a GPU: the library's matmuls, fused kernels between them; for few rows, fused matmuls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.kernels import skinny
from penstock.engine.gpu.linear import Fp8Linear, GpuLinear
from penstock.engine.gpu.operations import Operations
from penstock.engine.gpu.reference_rows import Factors, multiplied
from penstock.engine.layers.rotary import Rotary
from penstock.engine.models.config import DecoderConfig

Projection = GpuLinear | Fp8Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLayer:
    qkv: Projection
    attention_output: Projection
    gate_up: Projection
    down: Projection
    norms: Mapping[str, Tensor]  # by the names of models/layout.py
    rotary: Rotary | None
    window: int | None


@dataclass(frozen=True, slots=True)
class RowInputs:
    """One entry for each row of a step, on the device."""

    tokens: Tensor
    positions: Tensor  # int64
    places: Tensor  # int64: block * block size + offset
    wanted: Tensor | None = None  # int64: rows whose hidden states are asked for; None: all


class Attention(Protocol):
    """How the rows of a step look at the cache."""

    def __call__(self, query: Tensor, cache: PagedLayer, window: int | None, out: Tensor) -> None:
        """query: [rows, heads, head size]; out: [rows, heads * head size]."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """What goes into a matmul: rows as they are, or in eight bits with a scale each."""

    values: Tensor
    scales: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _Product:
    """What comes out of a matmul; where there are factors, it is yet to be multiplied by them."""

    values: Tensor
    factors: Factors | None = None


class GpuDecoder:
    def __init__(
        self,
        config: DecoderConfig,
        embedding: Tensor,
        layers: Sequence[GpuLayer],
        final_norm: Tensor,
        head: GpuLinear | None,
        operations: Operations,
        *,
        skinny_rows: int,
    ) -> None:
        """`skinny_rows`: steps of at most so many rows are computed with fused matmuls."""
        self.config = config
        self.embedding = embedding
        self.layers = layers
        self._final_norm = final_norm
        self._head = head
        self._operations = operations
        # The norm is part of a fused matmul, so it must be the thing before it, and the only one.
        self.skinny_rows = skinny_rows if config.norms == "before" else 0
        multiplier = torch.tensor(config.embedding_multiplier, dtype=embedding.dtype)
        # Rounded to the precision of the embedding, as the models were trained.
        self._embedding_multiplier = float(multiplier)

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def matrices(self) -> list[Projection]:
        """All but the embedding, which is only looked up."""
        found: list[Projection] = []
        for layer in self.layers:
            found += (layer.qkv, layer.attention_output, layer.gate_up, layer.down)
        return found if self._head is None else [*found, self._head]

    def prepare(self, positions: int) -> None:
        """Make ready for sequences of up to so many tokens."""
        for rotary in {layer.rotary for layer in self.layers} - {None}:
            assert rotary is not None
            rotary.prepare(positions)

    def forward(self, inputs: RowInputs, cache: Sequence[PagedLayer], attention: Attention) -> Tensor:
        """The hidden states after the last layer, [wanted rows, hidden size]."""
        if inputs.tokens.shape[0] <= self.skinny_rows:
            hidden = self._embedded(inputs.tokens)
            self._few_rows(hidden, inputs, cache, attention)
            return hidden if inputs.wanted is None else hidden[inputs.wanted]
        return self.finished(*self.attended(inputs, cache, attention), inputs.wanted)

    def attended(
        self, inputs: RowInputs, cache: Sequence[PagedLayer], attention: Attention
    ) -> tuple[Tensor, Tensor]:
        """The residual stream, and what the last layer attends to: all that is computed for every row."""
        layers = self.layers
        hidden = self._embedded(inputs.tokens)
        x = self._add_norm(hidden, None, layers[0].norms.get("attention_norm"), None, layers[0].qkv)
        for layer, kv, following in zip(layers, cache, layers[1:], strict=False):
            attended = self._attend(layer, kv, _apply(layer.qkv, x), inputs, attention)
            x = self._behind_attention(layer, hidden, attended, following)
        last = layers[-1]
        return hidden, self._attend(last, cache[-1], _apply(last.qkv, x), inputs, attention)

    def finished(self, hidden: Tensor, attended: Tensor, wanted: Tensor | None) -> Tensor:
        """The hidden states after the last layer. Nobody looks at the rows that are not wanted any more."""
        if wanted is not None:
            hidden, attended = hidden[wanted], attended[wanted]
        if hidden.shape[0]:
            self._behind_attention(self.layers[-1], hidden, attended, None)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, vocabulary], in the precision of the output matrix unless something more is done to them."""
        assert self._head is not None, "the core asks for logits only where there is an output matrix"
        if hidden.shape[0] <= self.skinny_rows:
            logits = hidden.new_empty((hidden.shape[0], self._head.weight.shape[0]))
            skinny.norm_linear(hidden, self._final_norm, self.config.norm_eps, self._head.weight, out=logits)
        else:
            logits = self._head(self.normed(hidden))
        cap = self.config.logits_softcap
        if cap is not None:
            logits = logits.float().div_(cap).tanh_().mul_(cap)
        return (
            logits if self.config.logits_divisor == 1.0 else logits.float().div_(self.config.logits_divisor)
        )

    def normed(self, hidden: Tensor) -> Tensor:
        out = torch.empty_like(hidden)
        self._operations.add_norm(hidden, None, self._final_norm, self.config.norm_eps, out=out)
        return out

    def _embedded(self, tokens: Tensor) -> Tensor:
        hidden = F.embedding(tokens, self.embedding)
        return hidden if self._embedding_multiplier == 1.0 else hidden * self._embedding_multiplier

    def _behind_attention(
        self, layer: GpuLayer, hidden: Tensor, attended: Tensor, following: GpuLayer | None
    ) -> _Rows:
        """The rest of a layer; what goes into the following one."""
        norms, after = layer.norms, None if following is None else following.norms.get("attention_norm")
        added = _apply_to_add(layer.attention_output, self._rows(attended, layer.attention_output))
        x = self._add_norm(
            hidden, added, norms.get("mlp_norm"), norms.get("attention_post_norm"), layer.gate_up
        )
        added = _apply_to_add(layer.down, self._activate(_apply(layer.gate_up, x), layer.down))
        projection = None if following is None else following.qkv
        return self._add_norm(hidden, added, after, norms.get("mlp_post_norm"), projection)

    def _few_rows(
        self, hidden: Tensor, inputs: RowInputs, cache: Sequence[PagedLayer], attention: Attention
    ) -> None:
        eps, rows = self.config.norm_eps, hidden.shape[0]
        multiplier = self.config.residual_multiplier
        for layer, kv in zip(self.layers, cache, strict=True):
            qkv = hidden.new_empty((rows, layer.qkv.weight.shape[0]))
            skinny.norm_linear(
                hidden, layer.norms["attention_norm"], eps, layer.qkv.weight, **_parts(layer.qkv), out=qkv
            )
            attended = self._attend(layer, kv, _Product(qkv), inputs, attention)
            output = layer.attention_output
            skinny.linear_add(attended, output.weight, hidden, **_parts(output), multiplier=multiplier)
            inner = hidden.new_empty((rows, layer.gate_up.weight.shape[0] // 2))
            skinny.gated_linear(
                hidden,
                layer.norms["mlp_norm"],
                eps,
                layer.gate_up.weight,
                **_parts(layer.gate_up),
                activation=self.config.activation,
                out=inner,
            )
            skinny.linear_add(inner, layer.down.weight, hidden, **_parts(layer.down), multiplier=multiplier)

    def _attend(
        self, layer: GpuLayer, cache: PagedLayer, product: _Product, inputs: RowInputs, attention: Attention
    ) -> Tensor:
        config, qkv, factors = self.config, product.values, product.factors
        heads, kv_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
        query_norm, key_norm = layer.norms.get("query_norm"), layer.norms.get("key_norm")
        if config.query_key_norm == "projection":
            assert query_norm is not None
            assert key_norm is not None
            if factors is not None:
                qkv, factors = multiplied(qkv, factors).to(qkv.dtype), None
            query, key, _ = qkv.split((heads * dim, kv_heads * dim, kv_heads * dim), dim=1)
            for part, weight in ((query, query_norm), (key, key_norm)):
                part.copy_(F.rms_norm(part.to(weight.dtype), weight.shape, weight, config.norm_eps))
            query_norm = key_norm = None
        self._operations.rotate_and_store(
            qkv,
            cache,
            inputs.positions,
            inputs.places,
            heads=heads,
            kv_heads=kv_heads,
            cos=None if layer.rotary is None else layer.rotary.cos,
            sin=None if layer.rotary is None else layer.rotary.sin,
            query_norm=query_norm,
            key_norm=key_norm,
            eps=config.norm_eps,
            factors=factors,
        )
        out = qkv.new_empty((qkv.shape[0], heads * dim))
        attention(qkv[:, : heads * dim].unflatten(1, (heads, dim)), cache, layer.window, out)
        return out

    def _add_norm(
        self,
        hidden: Tensor,
        delta: _Product | None,
        weight: Tensor | None,
        post_weight: Tensor | None,
        projection: Projection | None,
    ) -> _Rows:
        """Add to the residual stream; the rows that `projection` is then given. None: nothing follows."""
        quantized = isinstance(projection, Fp8Linear)
        rows = _room(hidden, quantized) if quantized or weight is not None else _Rows(hidden)
        self._operations.add_norm(
            hidden,
            None if delta is None else delta.values,
            weight,
            self.config.norm_eps,
            post_weight=post_weight,
            multiplier=self.config.residual_multiplier,
            factors=None if delta is None else delta.factors,
            out=rows.values,
            scales=rows.scales,
        )
        return rows

    def _activate(self, gate_up: _Product, projection: Projection) -> _Rows:
        inner = gate_up.values[:, : gate_up.values.shape[1] // 2]
        rows = _room(inner, isinstance(projection, Fp8Linear))
        self._operations.activate(
            gate_up.values,
            self.config.activation,
            factors=gate_up.factors,
            out=rows.values,
            scales=rows.scales,
        )
        return rows

    def _rows(self, x: Tensor, projection: Projection) -> _Rows:
        if not isinstance(projection, Fp8Linear):
            return _Rows(x)
        rows = _room(x, True)
        assert rows.scales is not None
        self._operations.quantize_rows(x, out=rows.values, scales=rows.scales)
        return rows


def _room(like: Tensor, quantized: bool) -> _Rows:
    """Unwritten rows of the shape of `like`."""
    if not quantized:
        return _Rows(like.new_empty(like.shape))
    values = torch.empty(like.shape, dtype=torch.float8_e4m3fn, device=like.device)
    return _Rows(values, torch.empty(like.shape[0], dtype=torch.float32, device=like.device))


def _apply(projection: Projection, rows: _Rows) -> _Product:
    if not isinstance(projection, Fp8Linear):
        return _Product(projection(rows.values))
    assert rows.scales is not None
    if projection.best_unscaled(rows.values.shape[0]):
        return _Product(projection.unscaled(rows.values), (rows.scales, projection.scales))
    return _Product(projection(rows.values, rows.scales))


def _apply_to_add(projection: Projection, rows: _Rows) -> _Product:
    """What is then added to the residual stream: it may come as several matrices."""
    if isinstance(projection, GpuLinear):
        return _Product(projection.summands(rows.values))
    return _apply(projection, rows)


def _parts(projection: Projection) -> dict[str, Tensor | None]:
    """What a fused matmul must know of a projection beside its weight."""
    scales = projection.scales if isinstance(projection, Fp8Linear) else None
    return {"scales": scales, "bias": projection.bias}
