"""What is measured: a model at its real shape, with random weights, in a precision."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from penstock.engine.config import KV_PRECISIONS, PRECISIONS, EngineConfig

# What an engine is not told by a subject.
FREE_OPTIONS = {option.name for option in fields(EngineConfig)} - {
    "model",
    "device",
    "load_format",
    "precision",
    "kv_precision",
    "without",
    "max_model_len",
}
MAX_MODEL_LEN = 8192  # tokens; the longest request of the workloads has 4097
_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
# As `config.json` says it, the numbers that their authors published.
MODELS: dict[str, dict[str, Any]] = {
    "llama8b": {
        **_LLAMA,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "qwen0.6b": {
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "attention_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    },
    "tiny": {
        **_LLAMA,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 512,
        "max_position_embeddings": 8192,
        "rope_theta": 10000.0,
    },
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a description that time depends on."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @classmethod
    def of(cls, model: str) -> Shape:
        config = MODELS[model]
        return cls(
            hidden=config["hidden_size"],
            inner=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config["head_dim"],
            vocabulary=config["vocab_size"],
        )

    def layer_matrices(self) -> list[tuple[int, int]]:
        """Rows and columns of a layer's matrices, fused as a step computes them."""
        query = self.heads * self.head_dim
        return [
            (query + 2 * self.kv_heads * self.head_dim, self.hidden),
            (self.hidden, query),
            (2 * self.inner, self.hidden),
            (self.hidden, self.inner),
        ]

    @property
    def layer_weights(self) -> int:
        """Numbers in the matrices of all layers, which every token is multiplied with."""
        return self.layers * sum(rows * columns for rows, columns in self.layer_matrices())

    @property
    def head_weights(self) -> int:
        return self.vocabulary * self.hidden

    def kv_bytes(self, kv_precision: str, itemsize: int = 2) -> int:
        """Of one token in all layers; of fp8 with a scale for each key and value."""
        vector = self.head_dim + 4 if kv_precision == "fp8" else self.head_dim * itemsize
        return 2 * self.layers * self.kv_heads * vector


@dataclass(frozen=True, slots=True)
class Subject:
    model: str
    precision: str
    kv_precision: str = "auto"
    without: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Subject:
        """MODEL, MODEL:PRECISION or MODEL:PRECISION:KV_PRECISION."""
        model, *rest = text.split(":")
        if model not in MODELS:
            raise ValueError(f"The model {model!r} is not known; there are {', '.join(MODELS)}.")
        if len(rest) > 2:
            raise ValueError(f"{text!r} has more than a model, a precision and that of the KV cache.")
        precision, kv_precision = [*rest, *("bfloat16", "auto")[len(rest) :]]
        for word, words in ((precision, PRECISIONS), (kv_precision, KV_PRECISIONS)):
            if word not in words:
                raise ValueError(f"The precision {word!r} is not known; there are {', '.join(words)}.")
        return cls(model, precision, kv_precision)

    @property
    def name(self) -> str:
        return self.spelled + "".join(f" without {part}" for part in self.without)

    @property
    def spelled(self) -> str:
        """What `read` makes it from again."""
        kv = f":{self.kv_precision}" if self.kv_precision != "auto" else ""
        return f"{self.model}:{self.precision}{kv}"

    @property
    def shape(self) -> Shape:
        return Shape.of(self.model)

    def config(self, folder: Path, device: str, **options: Any) -> EngineConfig:
        """Of an engine with random weights; what the model is like is written to the folder."""
        described = folder / self.model
        described.mkdir(parents=True, exist_ok=True)
        (described / "config.json").write_text(json.dumps(MODELS[self.model]))
        return EngineConfig(
            model=str(described),
            device=device,
            load_format="random",
            precision=self.precision,
            kv_precision=self.kv_precision,
            without=self.without,
            max_model_len=MAX_MODEL_LEN,
            **options,
        )
