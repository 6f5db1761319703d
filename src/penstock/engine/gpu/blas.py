"""y = x W^T by a chosen algorithm of cuBLASLt, where one was measured to beat the library's own choice.

Torch has the library loaded, but lets nobody choose. Whatever the library refuses is left to torch.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from ctypes import (
    POINTER,
    byref,
    c_float,
    c_int,
    c_int8,
    c_int32,
    c_int64,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from functools import cache
from typing import Any

import torch
from torch import Tensor

from penstock.engine.gpu.blas_choices import (
    FINE_ROWS,
    Algorithm,
    Choices,
    checked_in,
    choice,
    matrix_name,
    version_name,
)

logger = logging.getLogger("penstock.engine")

WORKSPACE_BYTES = 32 << 20
ALIGNMENT = 256  # bytes, of all operands: what the library takes for granted when it proposes
SUMMANDS = (1, 2, 3, 4)  # that products may be left in

# Names and numbers below are those of cublasLt.h and library_types.h.
_TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14, torch.float8_e4m3fn: 28}
_OPERANDS = (torch.float16, torch.bfloat16, torch.float8_e4m3fn)
_FLOAT32 = 0
_COMPUTE_FLOAT32 = 68
_TRANSPOSED = 1
_DESC_TRANSA, _DESC_FAST_ACCUM = 3, 25
_PREF_WORKSPACE, _PREF_REDUCTION_MASK, _PREF_WAVES = 1, 3, 9
_REDUCE_IN_FLOAT32 = 2  # the other schemes round the parts of a sum to the type of the output
_LAYOUT_BATCHES, _LAYOUT_DISTANCE = 5, 6
_CONFIG_ID = 0
_CONFIG: dict[str, tuple[int, Any]] = {
    "tile": (1, c_uint32),
    "split_k": (2, c_int32),
    "reduction": (3, c_uint32),
    "swizzle": (4, c_uint32),
    "custom": (5, c_uint32),
    "stages": (6, c_uint32),
    "inner_shape": (7, c_uint16),
    "cluster": (8, c_uint16),
}


class _Algo(ctypes.Structure):
    _fields_ = [("data", c_uint64 * 8)]


class _Heuristic(ctypes.Structure):
    _fields_ = [
        ("algo", _Algo),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


_P = c_void_p
_SIGNATURES: dict[str, list[Any]] = {
    "Create": [POINTER(_P)],
    "MatrixLayoutCreate": [POINTER(_P), c_int, c_uint64, c_uint64, c_int64],
    "MatrixLayoutSetAttribute": [_P, c_int, _P, c_size_t],
    "MatmulDescCreate": [POINTER(_P), c_int, c_int],
    "MatmulDescSetAttribute": [_P, c_int, _P, c_size_t],
    "MatmulPreferenceCreate": [POINTER(_P)],
    "MatmulPreferenceDestroy": [_P],
    "MatmulPreferenceSetAttribute": [_P, c_int, _P, c_size_t],
    "MatmulAlgoGetHeuristic": [_P, _P, _P, _P, _P, _P, _P, c_int, POINTER(_Heuristic), POINTER(c_int)],
    "MatmulAlgoInit": [_P, c_int, c_int, c_int, c_int, c_int, c_int, c_int, POINTER(_Algo)],
    "MatmulAlgoCheck": [_P, _P, _P, _P, _P, _P, POINTER(_Algo), POINTER(_Heuristic)],
    "MatmulAlgoConfigSetAttribute": [POINTER(_Algo), c_int, _P, c_size_t],
    "MatmulAlgoConfigGetAttribute": [POINTER(_Algo), c_int, _P, c_size_t, POINTER(c_size_t)],
    "Matmul": [_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, c_size_t, _P],
}


class BlasError(Exception):
    """The library refused a call."""


class Library:
    """The calls of cuBLASLt; each raises `BlasError` unless it succeeds."""

    def __init__(self, name: str) -> None:
        loaded = ctypes.CDLL(name)
        loaded.cublasLtGetVersion.restype = c_size_t
        self.version: int = loaded.cublasLtGetVersion()
        self._calls: dict[str, Callable[..., int]] = {}
        for call, arguments in _SIGNATURES.items():
            function = getattr(loaded, f"cublasLt{call}")
            function.argtypes, function.restype = arguments, c_int
            self._calls[call] = function

    def function(self, name: str) -> Callable[..., int]:
        """The bare call, which returns a status: 0 is success."""
        return self._calls[name]

    def call(self, name: str, *arguments: object) -> None:
        status = self._calls[name](*arguments)
        if status:
            raise BlasError(f"cublasLt{name} returned status {status}.")

    def create(self, name: str, *arguments: object) -> c_void_p:
        made = c_void_p()
        self.call(f"{name}Create", byref(made), *arguments)
        return made

    def set(self, name: str, thing: object, attribute: int, value: Any) -> None:
        self.call(f"{name}SetAttribute", thing, attribute, byref(value), sizeof(value))

    def attribute(self, algo: _Algo, attribute: int, kind: Any) -> int:
        value, written = kind(), c_size_t()
        self.call(
            "MatmulAlgoConfigGetAttribute",
            byref(algo),
            attribute,
            byref(value),
            sizeof(value),
            byref(written),
        )
        return int(value.value)

    def attributes(self, algo: _Algo) -> Algorithm:
        found = {name: self.attribute(algo, *where) for name, where in _CONFIG.items()}
        return Algorithm(id=self.attribute(algo, _CONFIG_ID, c_int32), **found)

    def set_attributes(self, algo: _Algo, wanted: Algorithm) -> None:
        for name, (attribute, kind) in _CONFIG.items():
            # An algorithm may refuse to be told what it cannot do, even if that is its default.
            if self.attribute(algo, attribute, kind) != getattr(wanted, name):
                self.set("MatmulAlgoConfig", byref(algo), attribute, kind(getattr(wanted, name)))


class Blas:
    """The library on one GPU. Its workspace is shared: matmuls follow each other on one stream."""

    def __init__(self, library: Library, device: torch.device) -> None:
        self.library = library
        self.device = device
        self.handle = library.create("")
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self.one, self.zero = c_float(1.0), c_float(0.0)  # the library reads them on the host


class Product:
    """y [rows, outputs] = x [rows, inputs] W^T, W [outputs, inputs], all row-major, summed in float32.

    The library counts by columns: to it y is [outputs, rows], x [inputs, rows] and W [inputs, outputs].
    Operands of eight bits have no scales, and y is then bfloat16. Of several summands,
    each is the product of as many of the inputs; y is then float32 [summands, rows, outputs].
    """

    def __init__(
        self, blas: Blas, dtype: torch.dtype, outputs: int, inputs: int, rows: int, summands: int = 1
    ) -> None:
        library = blas.library
        self.dtype = torch.bfloat16 if dtype.itemsize == 1 else dtype
        self.shape: tuple[int, ...] = (rows, outputs)
        self._blas = blas
        if summands > 1:
            self.dtype, self.shape = torch.float32, (summands, rows, outputs)
        kind, result = _TYPES[dtype], _TYPES[self.dtype]
        self._operation = library.create("MatmulDesc", _COMPUTE_FLOAT32, _FLOAT32)
        library.set("MatmulDesc", self._operation, _DESC_TRANSA, c_int32(_TRANSPOSED))
        if dtype.itemsize == 1:
            library.set("MatmulDesc", self._operation, _DESC_FAST_ACCUM, c_int8(1))
        share = inputs // summands
        self._a = library.create("MatrixLayout", kind, share, outputs, inputs)
        self._b = library.create("MatrixLayout", kind, share, rows, inputs)
        self._c = library.create("MatrixLayout", result, outputs, rows, outputs)
        if summands > 1:
            for layout, distance in ((self._a, share), (self._b, share), (self._c, rows * outputs)):
                library.set("MatrixLayout", layout, _LAYOUT_BATCHES, c_int32(summands))
                library.set("MatrixLayout", layout, _LAYOUT_DISTANCE, c_int64(distance))
        self._problem = (blas.handle, self._operation, self._a, self._b, self._c, self._c)
        self._types = (_COMPUTE_FLOAT32, _FLOAT32, kind, kind, result, result)
        self._launch = library.function("Matmul")

    def heuristics(self, count: int, *, waves: float = 0.0, split: bool = True) -> list[Algorithm]:
        """What the library proposes, best first; `waves`: at most so many of programs, 0: any number."""
        library = self._blas.library
        preference = library.create("MatmulPreference")
        try:
            settings = [
                (_PREF_WORKSPACE, c_uint64(WORKSPACE_BYTES)),
                (_PREF_REDUCTION_MASK, c_uint32(_REDUCE_IN_FLOAT32 if split else 0)),
                (_PREF_WAVES, c_float(waves)),
            ]
            for attribute, value in settings:
                library.set("MatmulPreference", preference, attribute, value)
            found, returned = (_Heuristic * count)(), c_int()
            library.call("MatmulAlgoGetHeuristic", *self._problem, preference, count, found, byref(returned))
        finally:
            library.call("MatmulPreferenceDestroy", preference)
        proposed = [library.attributes(each.algo) for each in found[: returned.value] if each.state == 0]
        return [each for each in proposed if each.split_k <= 1 or each.reduction == _REDUCE_IN_FLOAT32]

    def ready(self, algorithm: Algorithm) -> _Algo:
        """The algorithm for `launch`; raises `BlasError` where this GPU and library do not have it."""
        library = self._blas.library
        algo, checked = _Algo(), _Heuristic()
        library.call("MatmulAlgoInit", self._blas.handle, *self._types, algorithm.id, byref(algo))
        library.set_attributes(algo, algorithm)
        library.call("MatmulAlgoCheck", *self._problem, byref(algo), byref(checked))
        if checked.state or checked.workspace > WORKSPACE_BYTES:
            raise BlasError(f"The algorithm {tuple(algorithm)} needs {checked.workspace} bytes of workspace.")
        return algo

    def launch(self, x: Tensor, weight: Tensor, out: Tensor, algo: _Algo) -> int:
        """On the current stream. Returns a status: 0 is success."""
        blas, product = self._blas, out.data_ptr()
        return self._launch(
            blas.handle,
            self._operation,
            byref(blas.one),
            weight.data_ptr(),
            self._a,
            x.data_ptr(),
            self._b,
            byref(blas.zero),
            product,
            self._c,
            product,
            self._c,
            byref(algo),
            blas.workspace.data_ptr(),
            WORKSPACE_BYTES,
            torch.cuda.current_stream(blas.device).cuda_stream,
        )


class Chosen:
    """The products of all matrices of one shape, by rows, as far as an algorithm was chosen for them."""

    def __init__(
        self,
        blas: Blas,
        dtype: torch.dtype,
        outputs: int,
        inputs: int,
        choices: Choices,
        summands: int = 1,
    ) -> None:
        self._blas = blas
        self._shape = (dtype, outputs, inputs)
        self._choices = choices
        self._summands = summands
        self._ready: dict[int, tuple[Product, _Algo] | None] = {}

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor | None:
        """None: this one is left to torch."""
        rows = x.shape[0]
        if rows > FINE_ROWS and rows not in self._choices:
            return None
        if rows not in self._ready:
            self._ready[rows] = self._prepare(rows)
        ready = self._ready[rows]
        if ready is None or not _fits(x):
            return None
        product, algo = ready
        out = x.new_empty(product.shape, dtype=product.dtype)
        status = product.launch(x, weight, out, algo)
        if status:
            _refused(f"cublasLtMatmul returned status {status}.")
            self._ready[rows] = None
            return None
        return out

    def _prepare(self, rows: int) -> tuple[Product, _Algo] | None:
        algorithm = choice(self._choices, rows)
        if algorithm is None:
            return None
        try:
            product = Product(self._blas, *self._shape, rows, self._summands)
            return product, product.ready(algorithm)
        except BlasError as error:
            _refused(str(error))
            return None


def chosen(weight: Tensor) -> dict[int, Chosen]:
    """How to multiply with matrices like this one, by the summands that it is left in, as far as something
    was chosen. Not to be called in a capture."""
    if weight.device.type != "cuda" or weight.dtype not in _OPERANDS or not _fits(weight):
        return {}
    index = weight.device.index
    # Torch makes a tensor's GPU the current one for each of its calls; here it must already be.
    if index != torch.cuda.current_device():
        return {}
    found = {summands: _chosen(index, weight.dtype, *weight.shape, summands) for summands in SUMMANDS}
    return {summands: one for summands, one in found.items() if one is not None}


@cache
def blas_of(index: int) -> Blas | None:
    if torch.version.cuda is None:
        return None
    try:
        library = Library(f"libcublasLt.so.{torch.version.cuda.split('.')[0]}")
        return Blas(library, torch.device("cuda", index))
    except (OSError, AttributeError, BlasError) as error:
        _refused(str(error))
        return None


@cache
def _chosen(index: int, dtype: torch.dtype, outputs: int, inputs: int, summands: int) -> Chosen | None:
    by_version = checked_in().get(torch.cuda.get_device_name(index))
    blas = None if by_version is None else blas_of(index)
    if by_version is None or blas is None:
        return None
    matrices = by_version.get(version_name(blas.library.version), {})
    choices = matrices.get(matrix_name(str(dtype).removeprefix("torch."), outputs, inputs, summands))
    return Chosen(blas, dtype, outputs, inputs, choices, summands) if choices else None


def _fits(x: Tensor) -> bool:
    return x.is_contiguous() and x.data_ptr() % ALIGNMENT == 0


@cache  # one line of each kind
def _refused(what: str) -> None:
    logger.warning("A matmul is left to torch's choice of algorithm: %s", what)
