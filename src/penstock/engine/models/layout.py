"""Which tensors a decoder so described has, and what shape each of them must have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.engine.models.config import DecoderConfig, LayerConfig


@dataclass(frozen=True, slots=True)
class Tensor:
    """A stored tensor under Penstock's name for it."""

    name: str
    layer: int | None = None
    expert: int | None = None
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of the decoder: stored tensors laid under one another, perhaps each with a bias."""

    names: tuple[str, ...]
    rows: tuple[int, ...]
    columns: int
    bias: bool = False

    def tensors(
        self, layer: int | None, expert: int | None = None
    ) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
        for name, rows in zip(self.names, self.rows, strict=True):
            yield Tensor(name, layer, expert), (rows, self.columns)
            if self.bias:
                yield Tensor(name, layer, expert, bias=True), (rows,)


class Layout:
    """`names` are those the architecture has for its tensors: some are stored fused."""

    def __init__(self, config: DecoderConfig, names: Mapping[str, object]) -> None:
        self._config = config
        hidden, query = config.hidden_size, config.num_heads * config.head_dim
        key = config.num_kv_heads * config.head_dim
        self.embedding = Matrix(("embedding",), (config.vocab_size,), hidden)
        self.head = Matrix(("head",), (config.vocab_size,), hidden)
        self.qkv = (
            Matrix(("qkv",), (query + 2 * key,), hidden, config.qkv_bias)
            if "qkv" in names
            else Matrix(("query", "key", "value"), (query, key, key), hidden, config.qkv_bias)
        )
        self.attention_output = Matrix(("attention_output",), (hidden,), query, config.attention_output_bias)
        inner = config.intermediate_size
        self.gate_up = (
            Matrix(("gate_up",), (2 * inner,), hidden, config.mlp_bias)
            if "gate_up" in names
            else Matrix(("gate", "up"), (inner, inner), hidden, config.mlp_bias)
        )
        self.down = Matrix(("down",), (hidden,), inner, config.mlp_bias)
        if config.experts is not None:
            inner = config.experts.intermediate_size
            self.router = Matrix(("router",), (config.experts.count,), hidden)
            self.expert_gate_up = Matrix(("expert_gate", "expert_up"), (inner, inner), hidden)
            self.expert_down = Matrix(("expert_down",), (hidden,), inner)

    def norms(self, layer: LayerConfig | None) -> dict[str, int]:
        """The norms of a layer, or those outside all layers, with their sizes."""
        config = self._config
        if layer is None:
            return {"final_norm": config.hidden_size}
        names = []
        if config.norms in ("before", "around"):
            names += ["attention_norm", "mlp_norm"]
        if config.norms in ("after", "around"):
            names += ["attention_post_norm", "mlp_post_norm"]
        sizes = dict.fromkeys(names, config.hidden_size)
        if config.query_key_norm == "head":
            sizes |= {"query_norm": config.head_dim, "key_norm": config.head_dim}
        elif config.query_key_norm == "projection":
            sizes["query_norm"] = config.num_heads * config.head_dim
            sizes["key_norm"] = config.num_kv_heads * config.head_dim
        return sizes

    def tensors(self) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
        """All of them, with their shapes."""
        config = self._config
        yield from self.embedding.tensors(None)
        if config.has_head and not config.tied_embeddings:
            yield from self.head.tensors(None)
        for name, size in self.norms(None).items():
            yield Tensor(name), (size,)
        for index, layer in enumerate(config.layers):
            for name, size in self.norms(layer).items():
                yield Tensor(name, index), (size,)
            yield from self.qkv.tensors(index)
            yield from self.attention_output.tensors(index)
            if layer.experts:
                assert config.experts is not None
                yield from self.router.tensors(index)
                for expert in range(config.experts.count):
                    yield from self.expert_gate_up.tensors(index, expert)
                    yield from self.expert_down.tensors(index, expert)
            else:
                yield from self.gate_up.tensors(index)
                yield from self.down.tensors(index)
