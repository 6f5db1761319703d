"""One way to read tensors, whichever file they are in; never more than one of them at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from penstock.engine.models.architecture import Architecture
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.fields import Fields, read_description
from penstock.engine.models.gguf_fields import ROPE_FACTORS, gguf_fields
from penstock.engine.models.layout import Tensor
from penstock.engine.models.registry import by_class_names, by_gguf_name
from penstock.errors import ModelError
from penstock.hub.gguf import GGUFFile
from penstock.hub.safetensors import SafetensorsFolder

_TORCH_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


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

    def place(self, tensor: Tensor) -> Place:
        """Where the tensor lies, or would lie if the file had it."""

    def shape(self, stored: str) -> tuple[int, ...] | None:
        """From the file's header; None if there is no such tensor."""

    def read(self, tensor: Tensor) -> torch.Tensor:
        """The tensor on the CPU, in a floating-point type, query and key rows in half-split order."""

    def names(self) -> Collection[str]:
        """Of all stored tensors that mean something to the model."""


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
        classes = config.get("architectures") or []
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            raise ModelError(
                f"{path} names its architectures as {classes!r}; expected a list of class names."
            )
        self.architecture = by_class_names(classes)
        self.config = read_config(self.architecture, Fields(config), path)
        self.dtype = self._stored_dtype()

    def _stored_dtype(self) -> torch.dtype:
        kinds = Counter(entry.dtype for entry in self._folder.tensors.values())
        unknown = sorted(set(kinds) - set(_TORCH_DTYPES))
        if unknown:
            raise ModelError(
                f"{self._folder.path} stores tensors as {', '.join(unknown)}, which is not supported."
            )
        return _TORCH_DTYPES[kinds.most_common(1)[0][0]] if kinds else torch.float32

    def place(self, tensor: Tensor) -> Place:
        name = self.architecture.tensors[tensor.name][0].format(i=tensor.layer, e=tensor.expert)
        return Place(name + (".bias" if tensor.bias else ".weight"))

    def shape(self, stored: str) -> tuple[int, ...] | None:
        entry = self._folder.tensors.get(stored)
        return None if entry is None else entry.shape

    def read(self, tensor: Tensor) -> torch.Tensor:
        from safetensors import safe_open

        stored = self.place(tensor).stored
        with safe_open(self._folder.tensors[stored].file, framework="pt") as file:
            found: torch.Tensor = file.get_tensor(stored)
        return found

    def names(self) -> Collection[str]:
        # Old files carry the rotary frequencies.
        return [name for name in self._folder.tensors if not name.endswith("rotary_emb.inv_freq")]


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

    def shape(self, stored: str) -> tuple[int, ...] | None:
        found = self._file.tensors.get(stored)
        return None if found is None else found.shape

    def read(self, tensor: Tensor) -> torch.Tensor:
        place = self.place(tensor)
        values = _from_numpy(self._file.dequantize(place.stored, place.index))
        if self.architecture.gguf_interleaves_rotary and tensor.name in ("query", "key"):
            values = _split_rotary_halves(values, self.config.head_dim)
        return values

    def names(self) -> Collection[str]:
        return [name for name in self._file.tensors if name not in ROPE_FACTORS]


def _from_numpy(values: Any) -> torch.Tensor:
    # F32 tensors are views of the read-only file map, which torch warns about.
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def _split_rotary_halves(rows: torch.Tensor, head_dim: int) -> torch.Tensor:
    """From interleaved pairs (x0 y0 x1 y1 ...) to halves (x0 x1 ... y0 y1 ...), head by head."""
    rest = rows.shape[1:]
    return rows.reshape(-1, head_dim // 2, 2, *rest).transpose(1, 2).reshape(-1, *rest)


def read_config(architecture: Architecture, fields: Fields, path: Path) -> DecoderConfig:
    return read_description(fields, architecture.config, architecture.name, path)
