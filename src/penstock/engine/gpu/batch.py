"""What attention must know of a step, as tensors on the device."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

TILE_MEMBERS = 16  # sequences that read a shared prefix together


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Prefixes that several sequences of a step have in common, each read once for all of them.

    A group of sequences whose tables begin with the same blocks is cut into tiles of `TILE_MEMBERS`.
    """

    lengths: Tensor  # int32 [sequences] leading tokens that are read in a tile, whole blocks; 0: none
    members: Tensor  # int32 [tiles, TILE_MEMBERS] sequences of the step; -1: nobody
    slots: Tensor  # int32 [tiles] whose table is read
    spans: Tensor  # int32 [tiles] tokens to read; 0: an unused tile
    splits: int  # pieces that a prefix is cut into


@dataclass(frozen=True, slots=True)
class DecodeBatch:
    """Sequences with one query each: sequence i has row i of the queries.

    Addresses stay the same from step to step, so that a captured step can be replayed.
    """

    slots: Tensor  # int32 [sequences] rows of `tables`
    lengths: Tensor  # int32 [sequences] tokens that are seen, its own included; 0: padding, gives zeros
    tables: Tensor  # int32 [slots, most blocks]
    shared: SharedPrefixes | None = None


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """Sequences with several queries each: the chunks of prompts, one after another."""

    slots: Tensor  # int32 [sequences] rows of `tables`
    starts: Tensor  # int32 [sequences] position of the first query
    counts: Tensor  # int32 [sequences] queries
    rows: Tensor  # int32 [sequences] row of the first query among all rows of the step
    tiles: Tensor  # int32 [tiles, 2] (sequence, first of its queries in the tile), CHUNK_TILE queries each
    tables: Tensor  # int32 [slots, most blocks]
    seen: int  # tokens that the sequences see, all together; on the host, where memory is set aside by it
