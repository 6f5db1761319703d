"""One way to read tensors, whichever file they are in; never more than one of them at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from penstock.engine.models.architecture import PREFIX, Architecture
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields, read_description
from penstock.engine.models.gguf_fields import ROPE_FACTORS, gguf_fields
from penstock.engine.models.layout import Tensor
from penstock.engine.models.registry import by_class_names, by_gguf_name
from penstock.engine.models.tensors import from_numpy, read_tensor, stored_dtype
from penstock.engine.native.quantized import Quantized, from_gguf
from penstock.errors import ModelError
from penstock.hub.gguf import GGUFFile
from penstock.hub.safetensors import SafetensorsFolder


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies: a stored tensor, or one of several stacked in it."""

    stored: str
    index: int | None = None


class Weights(Protocol):
    """A model's tensors under Penstock's names."""

    path: Path
    architecture: Architecture
    config: DecoderConfig
    quantization: str  # how most of the weights are stored; "none" for floating point
    dtype: torch.dtype  # the floating-point type of the file
    shapes: Mapping[str, tuple[int, ...]]  # of all stored tensors that mean something to the model

    def place(self, tensor: Tensor) -> Place:
        """Where the tensor lies, or would lie if the file had it."""

    def read(self, tensor: Tensor) -> torch.Tensor:
        """The tensor in floating point, from files on the CPU; query and key rows in half-split order."""

    def quantized(self, tensor: Tensor) -> Quantized | None:
        """The same as the small integers that the file stores; None where it stores something else."""


def open_weights(path: str | Path) -> Weights:
    path = Path(path)
    return SafetensorsWeights(path) if path.is_dir() else GGUFWeights(path)


class SafetensorsWeights:
    quantization = "none"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = SafetensorsFolder(path)
        config = self._folder.config
        quantized = config.get("quantization_config")
        if quantized:
            method = quantized.get("quant_method") if isinstance(quantized, dict) else quantized
            raise ModelError(f"{path} is quantized with {method}, which Penstock does not read yet.")
        self.architecture = folder_architecture(config, path)
        # Old files carry the rotary frequencies.
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: entry.shape
            for name, entry in self._folder.tensors.items()
            if not name.endswith("rotary_emb.inv_freq")
        }
        self._bare = bool(self.shapes) and not any(name.startswith(PREFIX) for name in self.shapes)
        self.config = self._without_head(read_config(self.architecture, Fields(config), path))
        self.dtype = stored_dtype(self._folder, self.shapes)

    def _without_head(self, config: DecoderConfig) -> DecoderConfig:
        """Bare models have no output matrix, unless it is the embedding; of others it is missing."""
        bare = self._bare or self.architecture.class_name not in self._folder.config["architectures"]
        if not bare or config.tied_embeddings or self.place(Tensor("head")).stored in self.shapes:
            return config
        return replace(config, has_head=False)

    def place(self, tensor: Tensor) -> Place:
        name = self.architecture.tensors[tensor.name][0].format(i=tensor.layer, e=tensor.expert)
        if self._bare:
            name = name.removeprefix(PREFIX)
        return Place(name + (".bias" if tensor.bias else ".weight"))

    def read(self, tensor: Tensor) -> torch.Tensor:
        return read_tensor(self._folder, self.place(tensor).stored)

    def quantized(self, tensor: Tensor) -> Quantized | None:
        return None


class GGUFWeights:
    dtype = torch.float32

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = GGUFFile(path)
        name = self._file.get("general.architecture")
        if not isinstance(name, str):
            raise ModelError(f"{path} does not say its architecture; it is not a language model's file.")
        self.architecture = by_gguf_name(name)
        self.config = read_config(self.architecture, gguf_fields(self._file, self.architecture), path)
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: tensor.shape for name, tensor in self._file.tensors.items() if name not in ROPE_FACTORS
        }
        kinds = Counter({"none": 0})
        for tensor in self._file.tensors.values():
            if tensor.type_name not in ("F32", "F16", "BF16"):
                kinds[tensor.type_name] += tensor.nbytes
        self.quantization = kinds.most_common(1)[0][0]

    def place(self, tensor: Tensor) -> Place:
        name = self.architecture.tensors[tensor.name][1].format(i=tensor.layer)
        stored = name + (".bias" if tensor.bias else ".weight")
        if tensor.expert is None:
            return Place(stored)
        # The first files of mixtures had a tensor for each expert.
        alone = stored.replace("_exps", f".{tensor.expert}")
        return Place(alone) if alone in self._file.tensors else Place(stored, tensor.expert)

    def read(self, tensor: Tensor) -> torch.Tensor:
        place = self.place(tensor)
        values = from_numpy(self._file.dequantize(place.stored, place.index))
        if self.architecture.gguf_interleaves_rotary and tensor.name in ("query", "key"):
            values = _split_rotary_halves(values, self.config.head_dim)
        return values

    def quantized(self, tensor: Tensor) -> Quantized | None:
        place = self.place(tensor)
        raw = self._file.raw(place.stored)
        columns = self._file.tensors[place.stored].shape[-1]
        found = from_gguf(
            self._file.tensors[place.stored].type_name,
            raw if place.index is None else raw[place.index],
            columns,
        )
        if (
            found is not None
            and self.architecture.gguf_interleaves_rotary
            and tensor.name in ("query", "key")
        ):
            order = torch.arange(found.values.shape[0])
            found = found.rows(_split_rotary_halves(order, self.config.head_dim).numpy())
        return found


def _split_rotary_halves(rows: torch.Tensor, head_dim: int) -> torch.Tensor:
    """From interleaved pairs (x0 y0 x1 y1 ...) to halves (x0 x1 ... y0 y1 ...), head by head."""
    rest = rows.shape[1:]
    return rows.reshape(-1, head_dim // 2, 2, *rest).transpose(1, 2).reshape(-1, *rest)


def folder_architecture(config: Mapping[str, Any], path: Path) -> Architecture:
    """What a folder's `config.json` says it is; ModelError where it is nothing that is known."""
    classes = config.get("architectures") or []
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise ModelError(f"{path} names its architectures as {classes!r}; expected a list of class names.")
    return by_class_names(classes)


def read_config(architecture: Architecture, fields: Fields, path: Path) -> DecoderConfig:
    return read_description(fields, architecture.config, architecture.name, path)
