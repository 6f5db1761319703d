"""Weights of a model's shape and no meaning, made on the device: speed is measured without the files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch

from penstock.engine.models.fields import Fields
from penstock.engine.models.layout import Layout, Tensor
from penstock.engine.models.tensors import DTYPES
from penstock.engine.models.weights import GGUFWeights, Place, folder_architecture, read_config
from penstock.engine.native.quantized import Quantized
from penstock.hub.safetensors import read_json

SPREAD = 0.02  # of a matrix's numbers: activations of unit size stay near it through all layers
NORM_SPREAD = 0.1  # of a norm's, about one


class RandomWeights:
    """Of a folder with at least `config.json`, or of a GGUF file. Each load gives the same numbers."""

    quantization = "none"

    def __init__(self, path: Path, device: torch.device) -> None:
        self.path = path
        self._device = device
        if path.is_dir():
            stored = read_json(path / "config.json")
            self.architecture = folder_architecture(stored, path)
            self.config = read_config(self.architecture, Fields(stored), path)
            self.dtype = DTYPES.get(str(stored.get("torch_dtype") or stored.get("dtype")), torch.bfloat16)
        else:
            file = GGUFWeights(path)
            self.architecture, self.config, self.dtype = file.architecture, file.config, file.dtype
        self._sizes = dict(Layout(self.config, self.architecture.tensors).tensors())
        self.shapes: Mapping[str, tuple[int, ...]] = {
            self.place(tensor).stored: size for tensor, size in self._sizes.items()
        }

    def place(self, tensor: Tensor) -> Place:
        """A name of its own for each tensor: nothing is stored anywhere."""
        parts = (tensor.name, tensor.layer, tensor.expert, "bias" if tensor.bias else "weight")
        return Place(".".join(str(part) for part in parts if part is not None))

    def read(self, tensor: Tensor) -> torch.Tensor:
        """The tensor on the device, its numbers drawn from its name."""
        name = self.place(tensor).stored
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "little")
        source = torch.Generator(self._device).manual_seed(seed)
        mean, spread = 0.0, SPREAD
        if tensor.name.endswith("_norm"):
            mean, spread = float(not self.config.norm_weights_from_one), NORM_SPREAD
        values = torch.empty(self._sizes[tensor], dtype=self.dtype, device=self._device)
        return values.normal_(mean, spread, generator=source)

    def quantized(self, tensor: Tensor) -> Quantized | None:
        return None
