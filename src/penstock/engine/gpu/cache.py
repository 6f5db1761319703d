"""Keys and values on a GPU, in blocks; in eight bits each vector has a scale of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from penstock.engine.transfer import upload


@dataclass(frozen=True, slots=True)
class PagedLayer:
    """The cache of one layer. A block holds one head's vectors one after another, so that a tile is one piece
    of memory."""

    keys: Tensor  # [blocks, kv heads, block size, head size]
    values: Tensor
    # [blocks, kv heads, block size] float32: what a stored vector must be multiplied by. None: it is exact.
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None

    @property
    def block_size(self) -> int:
        return self.keys.shape[2]

    @property
    def kv_heads(self) -> int:
        return self.keys.shape[1]

    @property
    def head_dim(self) -> int:
        return self.keys.shape[3]


def vector_bytes(head_dim: int, dtype: torch.dtype) -> int:
    """What one key or value takes, its scale included."""
    return head_dim * dtype.itemsize + (torch.float32.itemsize if dtype.itemsize == 1 else 0)


def allocate(
    layers: int,
    kv_heads: int,
    blocks: int,
    block_size: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
) -> list[PagedLayer]:
    """Zeroed: a block may be read beyond what was written to it, and rubbish need not be a number."""
    shape = (blocks, kv_heads, block_size, head_dim)
    scaled = dtype.itemsize == 1

    def zeros() -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    def scales() -> Tensor | None:
        return torch.zeros(shape[:3], dtype=torch.float32, device=device) if scaled else None

    return [PagedLayer(zeros(), zeros(), scales(), scales()) for _ in range(layers)]


def copy_blocks(cache: Sequence[PagedLayer], copies: Sequence[tuple[int, int]]) -> None:
    """All at once, or in order where a block is copied to that is copied from or to elsewhere in the list."""
    if not copies:
        return
    sources, targets = zip(*copies, strict=True)
    if len(copies) == 1 or len(set(targets)) < len(targets) or not set(targets).isdisjoint(sources):
        for source, target in copies:
            for part in _parts(cache):
                part[target] = part[source]
        return
    from_blocks, to_blocks = upload(np.array((sources, targets), dtype=np.int64), cache[0].keys.device)
    for part in _parts(cache):
        part.index_copy_(0, to_blocks, part.index_select(0, from_blocks))


def _parts(cache: Sequence[PagedLayer]) -> Iterator[Tensor]:
    for layer in cache:
        for part in (layer.keys, layer.values, layer.key_scales, layer.value_scales):
            if part is not None:
                # Bytes where it is in eight bits: not everything is done with such floats.
                yield part.view(torch.uint8) if part.itemsize == 1 else part
