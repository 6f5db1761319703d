"""GGUF files, memory-mapped: metadata, where each tensor lies, and dequantized tensors.

The header is parsed here rather than by `gguf.GGUFReader`, which builds several numpy views for
every token of the vocabulary and so takes seconds where this takes a tenth of one. Every length
in the file is checked against the file's size before it is used: a header is untrusted input.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ModelError
from penstock.hub.regular import open_regular
from penstock.hub.split import all_parts

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


class _MalformedError(Exception):
    """A header that contradicts itself or the file's size; becomes a ModelError with the path."""


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """Where one tensor lies. `shape` is in torch order, so `[rows, columns]`."""

    name: str
    shape: tuple[int, ...]
    type_name: str  # ggml's name of the element type, e.g. "Q4_1"
    offset: int  # bytes from the start of its file
    nbytes: int
    part: int = 0  # of a model split into several files


class GGUFFile:
    """One GGUF file, or the first of a split model together with the others.

    Opening reads headers only; tensor data stays on disk until asked for. All metadata is in the first.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        first = _Part(self.path)
        self.metadata: dict[str, Any] = first.header.metadata
        self._parts = [first, *map(_Part, self._other_parts())]
        tensors = sum(len(part.header.infos) for part in self._parts)
        promised = self.metadata.get("split.tensors.count", tensors)
        if promised != tensors:
            raise ModelError(
                f"{self.path} and its other parts hold {tensors} tensors instead of {promised}; they are not "
                "of one model. Download them again."
            )

    def _other_parts(self) -> list[Path]:
        count = self.metadata.get("split.count", 0)
        if not isinstance(count, int) or count <= 1:
            return []
        files = all_parts(self.path)
        if len(files) != count:
            raise ModelError(
                f"{self.path} is one of {count} parts of a model, but its name does not end in "
                f"-00001-of-{count:05d}.gguf, by which the others would be found; rename it."
            )
        if self.metadata.get("split.no", 0) != 0:
            raise ModelError(
                f"{self.path} is a later part of a split model; give the first, {files[0].name}."
            )
        missing = [file.name for file in files if not os.path.exists(file)]
        if missing:
            raise ModelError(
                f"{self.path} lacks {len(missing)} of the model's {count} parts, first {missing[0]}; "
                "download the model again."
            )
        return files[1:]

    @property
    def bytes(self) -> int:
        """On the disk, all parts together."""
        return sum(len(part.map) for part in self._parts)

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(key, default)

    @cached_property
    def tensors(self) -> dict[str, GGUFTensor]:
        """All tensors by name, each known to lie wholly inside the file."""
        try:
            from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
        except Exception as error:  # a broken installation raises what it likes
            raise ModelError(
                f"{self.path} cannot be read because the package gguf, or one it needs, is damaged "
                f"({type(error).__name__}: {error}); `pip install --force-reinstall gguf` repairs it."
            ) from None

        found: dict[str, GGUFTensor] = {}
        infos = [(number, *info) for number, part in enumerate(self._parts) for info in part.header.infos]
        for number, name, shape, type_id, offset in infos:
            part = self._parts[number]
            try:
                kind = GGMLQuantizationType(type_id)
                block, block_bytes = GGML_QUANT_SIZES[kind]
            except (ValueError, KeyError):
                raise ModelError(
                    f"Tensor {name!r} of {part.path} has the unknown element type {type_id}; "
                    "a newer `gguf` package may know it."
                ) from None
            if name in found:
                raise ModelError(f"{part.path} is not a usable GGUF file: tensor {name!r} appears twice.")
            if shape[-1] % block:
                raise ModelError(
                    f"Tensor {name!r} of {part.path} has rows of {shape[-1]} elements, "
                    f"not a multiple of the {block} that {kind.name} packs together."
                )
            start = part.header.data_start + offset
            nbytes = math.prod(shape) // block * block_bytes
            if start + nbytes > len(part.map):
                raise ModelError(
                    f"{part.path} is truncated: tensor {name!r} ends at byte {start + nbytes}, "
                    f"but the file has {len(part.map)}. Download it again."
                )
            found[name] = GGUFTensor(name, shape, kind.name, start, nbytes, number)
        return found

    def raw(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's stored bytes as `[..., bytes per row]`; a read-only view of the file, not a copy."""
        import numpy as np

        tensor = self._tensor(name)
        data = self._parts[tensor.part].map
        flat = np.frombuffer(data, dtype=np.uint8, count=tensor.nbytes, offset=tensor.offset)
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


def _mapped(descriptor: int, path: Path) -> mmap.mmap:
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except ValueError:  # mmap's word for a file of no bytes
        raise ModelError(f"{path} is empty; download it again.") from None


class _Part:
    """One file, mapped, with its header read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open_regular(path) as file:
                self.map = _mapped(file.fileno(), path)
        except OSError as error:
            raise ModelError(f"Cannot open the GGUF file {path}: {error.strerror or error}.") from None
        try:
            self.header = _Header(self.map)
        except _MalformedError as error:
            raise ModelError(f"{path} is not a usable GGUF file: {error}. Download it again.") from None


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
