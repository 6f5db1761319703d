"""Headers of a safetensors model folder: which file holds which tensor, checked before anything is mapped.

Reading the tensors themselves is left to the `safetensors` package; this module finds out that a
folder is incomplete or a header is wrong early, with a sentence, and without numpy or torch.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ModelError
from penstock.hub.regular import open_regular, read_regular

INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100 << 20  # the format's own limit
# Bits an element takes; below eight, a tensor's elements together must fill whole bytes.
_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "BOOL": 8, "U8": 8,
    "I8": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies and what it is."""

    file: Path
    dtype: str  # safetensors' name, e.g. "BF16"
    shape: tuple[int, ...]


class SafetensorsFolder:
    """`config.json` and the tensors of a folder, sharded or not."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = read_json(self.path / "config.json")
        self.tensors: dict[str, TensorEntry] = {}
        weight_map = self._weight_map()
        for file in self._files(weight_map):
            for name, entry in read_header(file).items():
                # An index may leave out tensors of a shard, and says which shard holds a name given twice.
                if weight_map is not None and weight_map.get(name) != file.name:
                    continue
                if name in self.tensors:
                    raise ModelError(
                        f"Tensor {name!r} is in both {self.tensors[name].file.name} and {file.name} of "
                        f"{self.path}; remove the copy that does not belong, or add {INDEX}."
                    )
                self.tensors[name] = entry
        missing = sorted(set(weight_map or ()) - set(self.tensors))
        if missing:
            raise ModelError(
                f"{self.path / INDEX} names {len(missing)} tensors that its files do not hold, "
                f"first {missing[0]!r}; download the model again."
            )

    def _weight_map(self) -> dict[str, str] | None:
        path = self.path / INDEX
        if not path.exists():
            return None
        weight_map = read_json(path).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise ModelError(f"{path} has no usable 'weight_map'; download it again.")
        for name in set(weight_map.values()):
            if Path(name).name != name:  # a shard outside the folder is not the model's
                raise ModelError(f"{path} names the shard {name!r}, which is not a plain file name.")
        return weight_map

    def _files(self, weight_map: dict[str, str] | None) -> list[Path]:
        if weight_map is None:
            files = sorted(self.path.glob("*.safetensors"))
            if not files:
                raise ModelError(f"{self.path} holds no *.safetensors file.")
            return files
        files = [self.path / name for name in sorted(set(weight_map.values()))]
        missing = [file.name for file in files if not os.path.exists(file)]
        if missing:
            raise ModelError(
                f"{self.path} lacks {len(missing)} of its {len(files)} shards, first {missing[0]}; "
                "download the model again."
            )
        return files


def read_header(file: Path) -> dict[str, TensorEntry]:
    """The tensors of one file; raises ModelError unless they tile its data exactly."""
    try:
        with open_regular(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
                raise ModelError(f"{file} is truncated or not a safetensors file; download it again.")
            raw = stream.read(length)
    except OSError as error:
        raise ModelError(f"Cannot read {file}: {error.strerror or error}.") from None
    try:
        header = json.loads(raw)
        if not isinstance(header, dict):
            raise ValueError("it is not an object")
        spans = sorted(_span(name, entry) for name, entry in header.items() if name != "__metadata__")
        at = 0
        for begin, end, name in spans:
            if begin != at:
                raise ValueError(f"tensor {name!r} begins at byte {begin} instead of {at}")
            at = end
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ModelError(f"{file} has a malformed safetensors header: {error}.") from None
    held = size - 8 - length
    if at != held:
        matter = "is incomplete" if held < at else "goes on behind its last tensor"
        raise ModelError(
            f"{file} {matter}: its header describes {at} bytes of tensors, but the file holds {held}. "
            "Download it again."
        )
    return {
        name: TensorEntry(file, header[name]["dtype"], tuple(header[name]["shape"])) for _, _, name in spans
    }


def read_json(path: Path) -> dict[str, Any]:
    """An object from one of a model's JSON files."""
    try:
        value = json.loads(read_regular(path))
    except FileNotFoundError:
        raise ModelError(f"{path.parent} has no {path.name}; a model folder needs it.") from None
    except OSError as error:
        raise ModelError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} must hold a JSON object.")
    return value


def _span(name: str, entry: Any) -> tuple[int, int, str]:
    if not isinstance(entry, dict):
        raise ValueError(f"tensor {name!r} is not described by an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if dtype not in _BITS:
        raise ValueError(f"tensor {name!r} has the unknown dtype {dtype!r}")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"tensor {name!r} has the shape {shape!r}")
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(type(n) is int and n >= 0 for n in offsets)
    ):
        raise ValueError(f"tensor {name!r} has the data_offsets {offsets!r}")
    begin, end = offsets
    if (end - begin) * 8 != math.prod(shape) * _BITS[dtype]:
        raise ValueError(
            f"tensor {name!r} has {end - begin} bytes, which do not fit {dtype} of shape {shape}"
        )
    return begin, end, name
