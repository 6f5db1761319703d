"""An encoder's tensors out of its files, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penstock.engine.encode.config import EncoderConfig
from penstock.engine.encode.families import (
    ENCODERS,
    GGUF_ENCODERS,
    GGUF_TENSORS,
    Family,
    Names,
    gguf_config,
    gguf_fields,
)
from penstock.engine.models.checking import check_shapes
from penstock.engine.models.fields import Fields, read_description
from penstock.engine.models.tensors import from_numpy, read_tensor, stored_dtype
from penstock.errors import ModelError
from penstock.hub.gguf import GGUFFile
from penstock.hub.safetensors import SafetensorsFolder, read_json


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """A checked set of tensors: `read("query.weight", 3)`."""

    config: EncoderConfig
    dtype: torch.dtype  # as most are stored
    quantization: str
    _names: Names
    _get: Callable[[str], Tensor]

    def read(self, name: str, layer: int | None = None) -> Tensor:
        return self._get(_stored(self._names, name, layer))


def is_encoder(path: Path) -> bool:
    """Whether a model's files are of a family that is read here."""
    if path.is_dir():
        return _class_name(read_json(path / "config.json")) in ENCODERS
    return GGUFFile(path).get("general.architecture") in GGUF_ENCODERS


def open_weights(path: Path) -> EncoderWeights:
    """The tensors of an encoder; ModelError names everything that is missing, extra or misshapen."""
    return _open_folder(path) if path.is_dir() else _open_gguf(path)


def read_folder_config(family: Family, raw: Mapping[str, Any], path: Path) -> EncoderConfig:
    return read_description(
        Fields(raw), lambda fields: family.config(fields, family.scores), _class_name(raw), path
    )


def _open_folder(path: Path) -> EncoderWeights:
    folder = SafetensorsFolder(path)
    family = ENCODERS[_class_name(folder.config)]
    config = read_folder_config(family, folder.config, path)
    # Old files call the two vectors of a norm gamma and beta.
    stored = {name.replace(".gamma", ".weight").replace(".beta", ".bias"): name for name in folder.tensors}
    prefix = family.prefix if any(name.startswith(family.prefix) for name in stored) else ""
    names = {ours: theirs.replace("{p}", prefix) for ours, theirs in family.tensors.items()}
    found = {name: folder.tensors[theirs].shape for name, theirs in stored.items()}
    expected = _expected(config, names)
    spare = tuple(start.format(p=prefix) for start in family.spare)
    check_shapes(path, config.architecture, expected, found, spare)
    dtype = stored_dtype(folder, (stored[name] for name in expected))
    return EncoderWeights(config, dtype, "none", names, lambda name: read_tensor(folder, stored[name]))


def _open_gguf(path: Path) -> EncoderWeights:
    file = GGUFFile(path)
    found = {name: tensor.shape for name, tensor in file.tensors.items()}
    tables = {
        "vocab_size": "tokens.weight",
        "max_position_embeddings": "positions.weight",
        "type_vocab_size": "segments.weight",
    }
    rows = {name: found.get(_stored(GGUF_TENSORS, table), (0,))[0] for name, table in tables.items()}
    missing = [repr(_stored(GGUF_TENSORS, table)) for name, table in tables.items() if not rows[name]]
    if missing:
        raise ModelError(f"{path} has no tensor {', '.join(missing)}.")
    pooling = file.get("bert.pooling_type")
    fields = gguf_fields(file.metadata, rows)
    config = read_description(fields, lambda fields: gguf_config(fields, pooling), "bert", path)
    names = GGUF_TENSORS
    check_shapes(path, config.architecture, _expected(config, names), found, ("cls.",))
    kind = file.tensors[_stored(names, "query.weight", 0)].type_name

    quantization = "none" if kind in ("F32", "F16", "BF16") else kind
    return EncoderWeights(
        config, torch.float32, quantization, names, lambda name: from_numpy(file.dequantize(name))
    )


def _class_name(raw: Mapping[str, Any]) -> str:
    classes = raw.get("architectures")
    return str(classes[0]) if isinstance(classes, list) and classes else ""


def _stored(names: Names, name: str, layer: int | None = None) -> str:
    ours, _, part = name.rpartition(".")
    return f"{names[ours].format(i=layer)}.{part}"


def _expected(config: EncoderConfig, names: Names) -> dict[str, tuple[int, ...]]:
    """Every tensor the model needs, by the file's name, and its shape."""
    return {_stored(names, name, layer): shape for name, layer, shape in _shapes(config)}


def _shapes(config: EncoderConfig) -> Iterator[tuple[str, int | None, tuple[int, ...]]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    yield "tokens.weight", None, (config.vocab_size, hidden)
    yield "positions.weight", None, (config.positions, hidden)
    yield "segments.weight", None, (config.segments, hidden)
    yield from _vector_pair("embedding_norm", None, hidden)
    for layer in range(config.num_layers):
        for name in ("query", "key", "value", "attention_output"):
            yield from _matrix(name, layer, hidden, hidden)
        yield from _vector_pair("attention_norm", layer, hidden)
        yield from _matrix("up", layer, inner, hidden)
        yield from _matrix("down", layer, hidden, inner)
        yield from _vector_pair("output_norm", layer, hidden)
    if config.scores:
        yield from _matrix("head_dense", None, hidden, hidden)
        yield from _matrix("head_output", None, 1, hidden)


def _matrix(
    name: str, layer: int | None, rows: int, columns: int
) -> Iterator[tuple[str, int | None, tuple[int, ...]]]:
    yield f"{name}.weight", layer, (rows, columns)
    yield f"{name}.bias", layer, (rows,)


def _vector_pair(
    name: str, layer: int | None, size: int
) -> Iterator[tuple[str, int | None, tuple[int, ...]]]:
    yield f"{name}.weight", layer, (size,)
    yield f"{name}.bias", layer, (size,)
