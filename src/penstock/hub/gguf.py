"""GGUF files, memory-mapped: metadata, where each tensor lies, and dequantized tensors.

The header is parsed here rather than by `gguf.GGUFReader`, which builds several numpy views for
every token of the vocabulary and so takes seconds where this takes a tenth of one. Every length
in the file is checked against the file's size before it is used: a header is untrusted input.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_NESTING = 4  # arrays of arrays; no known file has any
MAX_ARRAY = 1 << 24  # elements of one metadata array; the largest vocabularies have a sixtieth of that

_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SPLIT_NAME = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)


class _MalformedError(Exception):
    """A header that contradicts itself or the file's size; becomes a ModelError with the path."""


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where one tensor lies. `shape` is in torch order, so `[rows, columns]`."""

    name: str
    shape: tuple[int, ...]
    type_name: str  # ggml's name of the element type, e.g. "Q4_1"
    offset: int  # bytes from the start of the file
    nbytes: int


class GGUFFile:
    """One GGUF file. Opening reads the header only; tensor data stays on disk until asked for."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                self._map = _mapped(file.fileno(), self.path)
        except OSError as error:
            raise ModelError(f"Cannot open the GGUF file {self.path}: {error.strerror or error}.") from None
        try:
            header = _Header(self._map)
        except _MalformedError as error:
            raise ModelError(f"{self.path} is not a usable GGUF file: {error}. Download it again.") from None
        self.metadata: dict[str, Any] = header.metadata
        self._infos = header.infos
        self._data_start = header.data_start
        splits = self.metadata.get("split.count", 0)
        if isinstance(splits, int) and splits > 1:
            raise ModelError(
                f"{self.path} is one of {splits} parts of a split GGUF model, which Penstock does not read. "
                "Join the parts with llama.cpp's `llama-gguf-split --merge` and give the merged file."
            )

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(key, default)

    @cached_property
    def tensors(self) -> dict[str, GGUFTensor]:
        """All tensors by name, each known to lie wholly inside the file."""
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        found: dict[str, GGUFTensor] = {}
        size = len(self._map)
        for name, shape, type_id, offset in self._infos:
            try:
                kind = GGMLQuantizationType(type_id)
                block, block_bytes = GGML_QUANT_SIZES[kind]
            except (ValueError, KeyError):
                raise ModelError(
                    f"Tensor {name!r} of {self.path} has the unknown element type {type_id}; "
                    "a newer `gguf` package may know it."
                ) from None
            if name in found:
                raise ModelError(f"{self.path} is not a usable GGUF file: tensor {name!r} appears twice.")
            if shape[-1] % block:
                raise ModelError(
                    f"Tensor {name!r} of {self.path} has rows of {shape[-1]} elements, "
                    f"not a multiple of the {block} that {kind.name} packs together."
                )
            start = self._data_start + offset
            nbytes = math.prod(shape) // block * block_bytes
            if start + nbytes > size:
                raise ModelError(
                    f"{self.path} is truncated: tensor {name!r} ends at byte {start + nbytes}, "
                    f"but the file has {size}. Download it again."
                )
            found[name] = GGUFTensor(name, shape, kind.name, start, nbytes)
        return found

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's stored bytes as `[..., bytes per row]`; a read-only view of the file, not a copy."""
        import numpy as np

        tensor = self._tensor(name)
        flat = np.frombuffer(self._map, dtype=np.uint8, count=tensor.nbytes, offset=tensor.offset)
        rows = math.prod(tensor.shape[:-1])
        return flat.reshape(*tensor.shape[:-1], tensor.nbytes // rows if rows else 0)

    def dequantize(self, name: str, index: int | None = None) -> npt.NDArray[np.float32]:
        """The tensor, or one entry of its first dimension, as float32 in torch order; read-only if it is
        stored as F32."""
        import numpy as np
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        tensor = self._tensor(name)
        data = self.raw(name) if index is None else self.raw(name)[index]
        if tensor.type_name == "F64":
            return data.view(np.float64).astype(np.float32)
        try:
            values: npt.NDArray[np.float32] = dequantize(data, GGMLQuantizationType[tensor.type_name])
        except NotImplementedError:
            raise ModelError(
                f"Tensor {name!r} of {self.path} is stored as {tensor.type_name}, "
                "which cannot be turned into numbers here; use a file with another quantization."
            ) from None
        return values.reshape(tensor.shape if index is None else tensor.shape[1:])

    def _tensor(self, name: str) -> GGUFTensor:
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelError(f"{self.path} has no tensor {name!r}.") from None


def is_split_name(path: Path) -> bool:
    """Whether the file name says it is one part of several."""
    return _SPLIT_NAME.search(path.name) is not None


def _mapped(descriptor: int, path: Path) -> mmap.mmap:
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except ValueError:  # mmap's word for a file of no bytes
        raise ModelError(f"{path} is empty; download it again.") from None


class _Header:
    """One pass over everything before the tensor data."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._size = len(data)
        self._at = 0
        magic = self._take(4)
        if magic != MAGIC:
            raise _MalformedError(f"it begins with {magic!r} instead of {MAGIC!r}")
        version = self._number(_U32)
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            known = " and ".join(map(str, VERSIONS))
            reason = "it is big-endian" if swapped in VERSIONS else f"it has version {version}"
            raise _MalformedError(f"{reason}, and Penstock reads little-endian versions {known}")
        tensor_count, pair_count = self._number(_U64), self._number(_U64)
        self.metadata: dict[str, Any] = {}
        for _ in range(pair_count):
            key = self._string()
            if key in self.metadata:
                raise _MalformedError(f"metadata key {key!r} appears twice")
            self.metadata[key] = self._value(self._number(_U32))
        self.infos = [self._tensor_info() for _ in range(tensor_count)]
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise _MalformedError(f"its alignment {alignment!r} is not a power of two")
        self.data_start = -(-self._at // alignment) * alignment

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > self._size:
            raise _MalformedError(f"its header wants {end} bytes or more, and the file has {self._size}")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _number(self, form: struct.Struct) -> Any:
        return form.unpack(self._take(form.size))[0]

    def _string(self) -> str:
        # Token strings of old conversions hold stray bytes; they must not keep the model from loading.
        return self._take(self._number(_U64)).decode("utf-8", errors="replace")

    def _value(self, kind: int, nesting: int = 0) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind != _ARRAY:
            raise _MalformedError(f"a metadata value has the unknown type {kind}")
        if nesting == MAX_NESTING:
            raise _MalformedError(f"metadata arrays nest deeper than {MAX_NESTING}")
        inner, count = self._number(_U32), self._number(_U64)
        if count > MAX_ARRAY:
            raise _MalformedError(f"a metadata array has {count} elements")
        if inner == _STRING:
            return self._strings(count)
        if inner in _SCALARS:
            form = _SCALARS[inner]
            return list(struct.unpack(f"<{count}{form.format[-1]}", self._take(count * form.size)))
        return [self._value(inner, nesting + 1) for _ in range(count)]

    def _strings(self, count: int) -> list[str]:
        """A vocabulary or merge list: hundreds of thousands of strings, hence without `_take`."""
        data, size, at = self._data, self._size, self._at
        length_at = _U64.unpack_from
        strings = []
        for _ in range(count):
            start = at + 8
            if start > size:
                raise _MalformedError(f"its header wants {start} bytes or more, and the file has {size}")
            at = start + length_at(data, at)[0]
            if at > size:
                raise _MalformedError(f"its header wants {at} bytes or more, and the file has {size}")
            strings.append(data[start:at].decode("utf-8", errors="replace"))
        self._at = at
        return strings

    def _tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        count = self._number(_U32)
        if not 1 <= count <= MAX_DIMENSIONS:
            raise _MalformedError(f"tensor {name!r} has {count} dimensions")
        dims = struct.unpack(f"<{count}Q", self._take(8 * count))
        kind, offset = self._number(_U32), self._number(_U64)
        return name, tuple(reversed(dims)), kind, offset  # the file counts the fastest dimension first
