"""One way to read tensors, whichever file they are in; never more than one of them at a time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from penstock.engine.models.architecture import Architecture
from penstock.engine.models.config import DecoderConfig
from penstock.engine.models.registry import by_class_names, by_gguf_name
from penstock.errors import ModelError
from penstock.hub.gguf import GGUFFile
from penstock.hub.safetensors import SafetensorsFolder

_TORCH_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Weights(Protocol):
    """A model's tensors under Penstock's names (`DENSE_TENSORS`)."""

    architecture: Architecture
    config: DecoderConfig
    quantization: str  # how most of the weights are stored; "none" for floating point
    dtype: torch.dtype  # the floating-point type of the file

    def has(self, name: str, layer: int | None = None) -> bool: ...

    def read(self, name: str, layer: int | None = None, *, bias: bool = False) -> Tensor:
        """The tensor on the CPU, in a floating-point type, query and key rows in half-split order."""

    def rope_factors(self) -> Tensor | None:
        """Divisors of the rotary frequencies, where the file carries them."""


def open_weights(path: str | Path) -> Weights:
    path = Path(path)
    return SafetensorsWeights(path) if path.is_dir() else GGUFWeights(path)


class SafetensorsWeights:
    quantization = "none"

    def __init__(self, path: Path) -> None:
        self._folder = SafetensorsFolder(path)
        config = self._folder.config
        if config.get("quantization_config"):
            method = config["quantization_config"].get("quant_method", "an unnamed method")
            raise ModelError(f"{path} is quantized with {method}, which Penstock does not read yet.")
        self.architecture = by_class_names(config.get("architectures") or [])
        self.config = _read_config(self.architecture.config_from_json, config, path)
        self.dtype = self._stored_dtype()

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

    def has(self, name: str, layer: int | None = None) -> bool:
        return self._name(name, layer, False) in self._folder.tensors

    def read(self, name: str, layer: int | None = None, *, bias: bool = False) -> Tensor:
        from safetensors import safe_open

        stored = self._name(name, layer, bias)
        entry = self._folder.tensors.get(stored)
        if entry is None:
            raise ModelError(f"{self._folder.path} has no tensor {stored!r}.")
        with safe_open(entry.file, framework="pt") as file:
            tensor: Tensor = file.get_tensor(stored)
        return tensor

    def rope_factors(self) -> Tensor | None:
        return None


class GGUFWeights:
    dtype = torch.float32

    def __init__(self, path: Path) -> None:
        self._file = GGUFFile(path)
        name = self._file.get("general.architecture")
        if not isinstance(name, str):
            raise ModelError(f"{path} does not say its architecture; it is not a language model's file.")
        self.architecture = by_gguf_name(name)
        self.config = _read_config(self.architecture.config_from_gguf, self._file.metadata, path)
        kinds = Counter({"none": 0})
        for tensor in self._file.tensors.values():
            if tensor.type_name not in ("F32", "F16", "BF16"):
                kinds[tensor.type_name] += tensor.nbytes
        self.quantization = kinds.most_common(1)[0][0]

    def _name(self, name: str, layer: int | None, bias: bool) -> str:
        return self.architecture.tensors[name][1].format(i=layer) + (".bias" if bias else ".weight")

    def has(self, name: str, layer: int | None = None) -> bool:
        return self._name(name, layer, False) in self._file.tensors

    def read(self, name: str, layer: int | None = None, *, bias: bool = False) -> Tensor:
        tensor = _from_numpy(self._file.dequantize(self._name(name, layer, bias)))
        if self.architecture.gguf_interleaves_rotary and name in ("query", "key"):
            tensor = _split_rotary_halves(tensor, self.config.head_dim)
        return tensor

    def rope_factors(self) -> Tensor | None:
        if "rope_freqs.weight" not in self._file.tensors:
            return None
        return _from_numpy(self._file.dequantize("rope_freqs.weight"))


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
    except (TypeError, ArithmeticError) as error:
        raise ModelError(f"{path} describes a model that makes no sense: {error}.") from None
    return config
