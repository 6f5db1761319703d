"""Files of arrays that somebody else may have made: read within bounds, and never run."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

MOST_BYTES: Final = 256 << 20  # of a file, and of all its arrays
# What a damaged file makes the readers raise, beside OSError.
DAMAGED: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
_HEADERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_content(path: Path) -> bytes:
    """The bytes of a file. Raises OSError, or ValueError for more than `MOST_BYTES`."""
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MB")
    return content


def arrays_of(content: bytes) -> Arrays:
    """What `numpy.savez` wrote. Raises one of DAMAGED for anything else, before there is memory for it."""
    arrays: Arrays = {}
    left = MOST_BYTES
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.infolist():
            if member.compress_type not in _METHODS:
                raise ValueError(f"{member.filename[:40]!r} is compressed in another way")
            with archive.open(member) as file:
                shape, order, kind = _HEADERS[npy.read_magic(file)](file)
                size = math.prod(shape) * kind.itemsize
                if kind.hasobject or not 0 <= size <= left or kind.itemsize == 0:
                    raise ValueError(f"{member.filename[:40]!r} is no array of at most {left >> 20} MB")
                left -= size
                data = file.read(size)
            flat = np.frombuffer(data, kind, count=math.prod(shape))
            arrays[member.filename.removesuffix(".npy")] = flat.reshape(shape, order="F" if order else "C")
    return arrays
