"""Small random encoders on the disk, written by transformers, and one text through a core."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from penstock.engine.config import EngineConfig
from penstock.engine.encode.core import EncoderCore
from penstock.engine.request import Pooling, Request

SHAPE: dict[str, Any] = {
    "vocab_size": 200,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 66,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-6,
}
CONFIGS = {
    "Bert": transformers.BertConfig,
    "Roberta": transformers.RobertaConfig,
    "XLMRoberta": transformers.XLMRobertaConfig,
}


def save(path: Path, kind: str, task: str = "Model", *, seed: int = 0, **shape: Any) -> Any:
    """A model of `kind` for `task` in the folder `path`; returns transformers' own."""
    config = CONFIGS[kind](**{**SHAPE, **shape})
    torch.manual_seed(seed)
    model = getattr(transformers, f"{kind}{task}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # far from the tiny ones transformers starts with
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(path)
    return model


def edit_config(path: Path, **changes: Any) -> None:
    file = path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def core(path: Path, **options: Any) -> EncoderCore:
    return EncoderCore(EngineConfig(model=str(path), **{"device": "cpu", **options}))


def encode(
    engine: EncoderCore,
    texts: Mapping[str, Sequence[int]],
    pooling: Pooling = "mean",
    segments: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, npt.NDArray[np.float32]]:
    """All texts submitted at once; their vectors by name."""
    for name, ids in texts.items():
        kinds = list((segments or {}).get(name, ()))
        engine.submit(Request(id=name, prompt=list(ids), pooling=pooling, segments=kinds))
    vectors = {}
    while engine.has_work:
        for event in engine.step():
            assert event.finish_reason == "stop", event.error
            vectors[event.request_id] = np.frombuffer(event.embedding, dtype="<f4")
    engine.check()
    return vectors


def random_texts(count: int, *, longest: int = 60, seed: int = 1) -> dict[str, list[int]]:
    draw = np.random.default_rng(seed)
    return {f"text-{n}": draw.integers(5, 200, draw.integers(1, longest + 1)).tolist() for n in range(count)}
