"""One way to read tensors, whichever file they are in; never more than one of them at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from penstock.engine.models.architecture import Architecture
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.registry import by_class_names, by_gguf_name
from penstock.errors import ModelError
from penstock.hub.gguf import GGUFFile
from penstock.hub.safetensors import SafetensorsFolder, TensorEntry

ROPE_FACTORS = "rope_freqs.weight"
_TORCH_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Weights(Protocol):
    """A model's tensors under Penstock's names (`DENSE_TENSORS`)."""

    architecture: Architecture
    config: DecoderConfig
    quantization: str  # how most of the weights are stored; "none" for floating point
    dtype: torch.dtype  # the floating-point type of the file

    @property
    def tied(self) -> bool:
        """Whether the embedding is the output matrix too."""

    def shape(self, name: str, layer: int | None = None, *, bias: bool = False) -> tuple[int, ...]:
        """From the file's header; ModelError if there is no such tensor."""

    def read(self, name: str, layer: int | None = None, *, bias: bool = False) -> Tensor:
        """The tensor on the CPU, in a floating-point type, query and key rows in half-split order."""

    def rope_factors(self) -> Tensor | None:
        """Divisors of the rotary frequencies, where the file carries them."""

    def unread(self) -> list[str]:
        """The file's own names of tensors that nobody asked for."""


def open_weights(path: str | Path) -> Weights:
    path = Path(path)
    return SafetensorsWeights(path) if path.is_dir() else GGUFWeights(path)


class SafetensorsWeights:
    quantization = "none"

    def __init__(self, path: Path) -> None:
        self._folder = SafetensorsFolder(path)
        self._asked: set[str] = set()
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
        self.config = _read_config(self.architecture.config_from_json, config, path)
        self.dtype = self._stored_dtype()

    @property
    def tied(self) -> bool:
        return self.config.tied_embeddings

    def _stored_dtype(self) -> torch.dtype:
        kinds = Counter(entry.dtype for entry in self._folder.tensors.values())
        unknown = sorted(set(kinds) - set(_TORCH_DTYPES))
        if unknown:
            raise ModelError(
                f"{self._folder.path} stores tensors as {', '.join(unknown)}, which is not supported."
            )
        return _TORCH_DTYPES[kinds.most_common(1)[0][0]]

    def _name(self, name: str, layer: int | None, bias: bool) -> str:
        return self.architecture.tensors[name][0].format(i=layer) + (".bias" if bias else ".weight")

    def _entry(self, name: str) -> TensorEntry:
        entry = self._folder.tensors.get(name)
        if entry is None:
            raise ModelError(f"{self._folder.path} has no tensor {name!r}.")
        return entry

    def shape(self, name: str, layer: int | None = None, *, bias: bool = False) -> tuple[int, ...]:
        return self._entry(self._name(name, layer, bias)).shape

    def read(self, name: str, layer: int | None = None, *, bias: bool = False) -> Tensor:
        from safetensors import safe_open

        stored = self._name(name, layer, bias)
        entry = self._entry(stored)
        self._asked.add(stored)
        with safe_open(entry.file, framework="pt") as file:
            tensor: Tensor = file.get_tensor(stored)
        return tensor

    def rope_factors(self) -> Tensor | None:
        return None

    def unread(self) -> list[str]:
        # Old files carry the rotary frequencies, and tied models their output matrix a second time.
        spare = {self._name("head", None, False)} if self.tied else set()
        extra = self._folder.tensors.keys() - self._asked - spare
        return sorted(name for name in extra if not name.endswith("rotary_emb.inv_freq"))


class GGUFWeights:
    dtype = torch.float32

    def __init__(self, path: Path) -> None:
        self._file = GGUFFile(path)
        name = self._file.get("general.architecture")
        if not isinstance(name, str):
            raise ModelError(f"{path} does not say its architecture; it is not a language model's file.")
        self.architecture = by_gguf_name(name)
        self._asked: set[str] = set()
        config = _read_config(self.architecture.config_from_gguf, self._file.metadata, path)
        # The metadata does not say which biases there are.
        self.config = replace(
            config,
            attention_bias=self._name("query", 0, True) in self._file.tensors,
            mlp_bias=self._name("gate", 0, True) in self._file.tensors,
        )
        kinds = Counter({"none": 0})
        for tensor in self._file.tensors.values():
            if tensor.type_name not in ("F32", "F16", "BF16"):
                kinds[tensor.type_name] += tensor.nbytes
        self.quantization = kinds.most_common(1)[0][0]

    def _name(self, name: str, layer: int | None, bias: bool) -> str:
        return self.architecture.tensors[name][1].format(i=layer) + (".bias" if bias else ".weight")

    @property
    def tied(self) -> bool:
        return self._name("head", None, False) not in self._file.tensors

    def shape(self, name: str, layer: int | None = None, *, bias: bool = False) -> tuple[int, ...]:
        stored = self._name(name, layer, bias)
        if stored not in self._file.tensors:
            raise ModelError(f"{self._file.path} has no tensor {stored!r}.")
        return self._file.tensors[stored].shape

    def read(self, name: str, layer: int | None = None, *, bias: bool = False) -> Tensor:
        stored = self._name(name, layer, bias)
        self._asked.add(stored)
        tensor = _from_numpy(self._file.dequantize(stored))
        if self.architecture.gguf_interleaves_rotary and name in ("query", "key"):
            tensor = _split_rotary_halves(tensor, self.config.head_dim)
        return tensor

    def rope_factors(self) -> Tensor | None:
        if ROPE_FACTORS not in self._file.tensors:
            return None
        self._asked.add(ROPE_FACTORS)
        return _from_numpy(self._file.dequantize(ROPE_FACTORS))

    def unread(self) -> list[str]:
        return sorted(self._file.tensors.keys() - self._asked)


def _from_numpy(values: Any) -> Tensor:
    # F32 tensors are views of the read-only file map, which torch warns about.
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def _split_rotary_halves(rows: Tensor, head_dim: int) -> Tensor:
    """From interleaved pairs (x0 y0 x1 y1 ...) to halves (x0 x1 ... y0 y1 ...), head by head."""
    rest = rows.shape[1:]
    return rows.reshape(-1, head_dim // 2, 2, *rest).transpose(1, 2).reshape(-1, *rest)


def _read_config(read: Any, raw: Any, path: Path) -> DecoderConfig:
    try:
        config: DecoderConfig = read(raw)
    except KeyError as error:
        raise ModelError(f"{path} does not give {error.args[0]!r}, which its architecture needs.") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ModelError(f"{path} describes a model that makes no sense: {error}.") from None
    return config
