"""Reading single tensors of any model, and the floating-point type they are computed in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from penstock.errors import ConfigError, ModelError
from penstock.hub.safetensors import SafetensorsFolder

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_STORED = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def choose_dtype(name: str, stored: torch.dtype, device: torch.device) -> torch.dtype:
    """ "auto" is float32 on the CPU, and on a GPU what the file holds, but no more than 16 bits."""
    if name == "auto":
        if device.type == "cpu":
            return torch.float32
        return stored if stored.itemsize <= 2 else torch.bfloat16
    if name == "int8":
        raise ConfigError("precision is int8, in which only decoders are computed; ask for auto or float32.")
    if name == "fp8":
        raise ConfigError("precision is fp8, in which only decoders on a GPU are computed; ask for auto.")
    return DTYPES[name]


def stored_dtype(folder: SafetensorsFolder, names: Iterable[str]) -> torch.dtype:
    """That of most of the tensors so named; ModelError if one cannot be read."""
    kinds = Counter(folder.tensors[name].dtype for name in names)
    unknown = sorted(set(kinds) - set(_STORED))
    if unknown:
        raise ModelError(
            f"{folder.path} stores tensors as {', '.join(unknown)}; {', '.join(_STORED)} can be read."
        )
    return _STORED[kinds.most_common(1)[0][0]] if kinds else torch.float32


def read_tensor(folder: SafetensorsFolder, name: str) -> Tensor:
    from safetensors import safe_open

    with safe_open(folder.tensors[name].file, framework="pt") as file:
        tensor: Tensor = file.get_tensor(name)
    return tensor


def norm_vector(vector: Tensor, from_one: bool) -> Tensor:
    """The weights of a norm. `from_one`: they are stored as their difference from one."""
    # Kept in float32: near one, half precision would lose most of the difference.
    return vector.float() + 1.0 if from_one else vector


def from_numpy(values: Any) -> Tensor:
    # F32 tensors are views of the read-only file map, which torch warns about.
    return torch.from_numpy(values if values.flags.writeable else values.copy())
