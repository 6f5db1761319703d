"""Weights as small integers: d q + m for each 32 of a row, as GGUF files store them, or made from floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from penstock.engine.native.library import GROUP, library

Bytes = npt.NDArray[np.uint8]
Halves = npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Quantized:
    values: Bytes  # [rows, groups * 32]: q
    scales: Halves  # [rows, groups]: d
    offsets: Halves  # [rows, groups]: m
    columns: int
    bits: int  # 4 or 8, that the largest q needs
    scale: float = 1.0  # of all of it, a power of two

    def rows(self, order: npt.NDArray[np.int64]) -> Quantized:
        return Quantized(
            self.values[order], self.scales[order], self.offsets[order], self.columns, self.bits, self.scale
        )


def stacked(parts: Sequence[Quantized]) -> Quantized:
    """One matrix of several, which have the same columns and scale."""
    assert len({(part.columns, part.scale) for part in parts}) == 1
    if len(parts) == 1:
        return parts[0]
    return Quantized(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.scales for part in parts]),
        np.concatenate([part.offsets for part in parts]),
        parts[0].columns,
        max(part.bits for part in parts),
        parts[0].scale,
    )


def from_floats(weight: torch.Tensor) -> Quantized:
    """Eight bits for each weight: an error of at most a 510th of what a group spans."""
    native = library()
    assert native is not None, "only the native path asks for small integers"
    floats = np.ascontiguousarray(weight.float().numpy())
    rows, columns = floats.shape
    groups = -(-columns // GROUP)
    values = np.zeros((rows, groups * GROUP), dtype=np.uint8)
    scales, offsets = np.zeros((rows, groups), dtype=np.float16), np.zeros((rows, groups), dtype=np.float16)
    # Half precision is exact only away from its ends: the largest weight is put near the upper one.
    largest = float(np.abs(floats).max(initial=0.0, where=np.isfinite(floats)))
    scale = 2.0 ** max(np.ceil(np.log2(largest)) - 14, -126) if largest > 0 else 1.0
    native.penstock_quantize(
        floats.ctypes.data,
        rows,
        columns,
        scale,
        values.ctypes.data,
        scales.ctypes.data,
        offsets.ctypes.data,
    )
    return Quantized(values, scales, offsets, columns, 8, float(scale))


def from_gguf(kind: str, raw: Bytes, columns: int) -> Quantized | None:
    """What a file holds, [rows, bytes of a row], without loss; None for kinds whose groups are others."""
    unpack = _UNPACKERS.get(kind)
    if unpack is None or columns % GROUP:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        unpacked = unpack(raw)
    if not (np.isfinite(unpacked.scales).all() and np.isfinite(unpacked.offsets).all()):
        return None  # beyond half precision; as floats it may do
    rows = raw.shape[0]
    return Quantized(
        np.ascontiguousarray(unpacked.values.reshape(rows, columns)),
        np.ascontiguousarray(unpacked.scales.reshape(rows, -1)),
        np.ascontiguousarray(unpacked.offsets.reshape(rows, -1)),
        columns,
        unpacked.bits,
        unpacked.scale,
    )


class _Unpacked(NamedTuple):
    values: Bytes
    scales: Halves
    offsets: Halves
    bits: int
    scale: float = 1.0


def _blocks(raw: Bytes, size: int) -> Bytes:
    return np.ascontiguousarray(raw).reshape(-1, size)


def _half(blocks: Bytes, at: int) -> Halves:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16)[:, 0]


def _nibbles(packed: Bytes) -> Bytes:
    """The low halves of all bytes, then the high ones."""
    return np.concatenate((packed & 15, packed >> 4), axis=-1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """32 bits, each as the fifth bit of a value."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << np.uint8(4)


def _q4_0(raw: Bytes) -> _Unpacked:
    blocks = _blocks(raw, 18)
    d = _half(blocks, 0)
    return _Unpacked(_nibbles(blocks[:, 2:]), d, d * np.float16(-8), 4)


def _q4_1(raw: Bytes) -> _Unpacked:
    blocks = _blocks(raw, 20)
    return _Unpacked(_nibbles(blocks[:, 4:]), _half(blocks, 0), _half(blocks, 2), 4)


def _q5_0(raw: Bytes) -> _Unpacked:
    blocks = _blocks(raw, 22)
    d = _half(blocks, 0)
    values = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return _Unpacked(values, d, d * np.float16(-16), 8)


def _q5_1(raw: Bytes) -> _Unpacked:
    blocks = _blocks(raw, 24)
    values = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return _Unpacked(values, _half(blocks, 0), _half(blocks, 2), 8)


def _q8_0(raw: Bytes) -> _Unpacked:
    blocks = _blocks(raw, 34)
    d = _half(blocks, 0)
    return _Unpacked(blocks[:, 2:] ^ np.uint8(128), d, d * np.float16(-128), 8)


# Of the K kinds a group's scale is a product of two numbers, mostly too small for half precision as it is.
_K_SCALE = 2.0**-10


def _k_scales(blocks: Bytes) -> tuple[Halves, Halves]:
    """Scales and offsets of the eight groups of each block: six bits each, times one number for all."""
    packed = blocks[:, 4:16]
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scale = np.concatenate((low & 63, high & 15 | (low >> 6) << 4), axis=1)
    offset = np.concatenate((middle & 63, high >> 4 | (middle >> 6) << 4), axis=1)
    d, least = (_half(blocks, at).astype(np.float32)[:, None] / np.float32(_K_SCALE) for at in (0, 2))
    return (d * scale).astype(np.float16), (-least * offset).astype(np.float16)


def _q4_k(raw: Bytes) -> _Unpacked:
    blocks = _blocks(raw, 144)
    return _Unpacked(_nibbles(blocks[:, 16:].reshape(-1, 4, 32)), *_k_scales(blocks), 4, _K_SCALE)


def _q5_k(raw: Bytes) -> _Unpacked:
    blocks = _blocks(raw, 176)
    # Bit g of byte i belongs to value i of group g.
    fifth = np.unpackbits(blocks[:, 16:48, None], axis=-1, bitorder="little").transpose(0, 2, 1)
    values = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | fifth << np.uint8(4)
    return _Unpacked(values, *_k_scales(blocks), 8, _K_SCALE)


_UNPACKERS: Mapping[str, Callable[[Any], _Unpacked]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
}
