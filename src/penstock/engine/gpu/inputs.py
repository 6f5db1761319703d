"""What a step's rows and its attention are given, built from a plan and the slots on the device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from penstock.engine.gpu.batch import ChunkBatch, DecodeBatch
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.decoder import RowInputs
from penstock.engine.gpu.kernels.chunk_attention import attend_chunks, chunk_tiles
from penstock.engine.gpu.kernels.decode_attention import Workspace, attend_decodes, begin_decodes
from penstock.engine.gpu.kernels.inputs import gather_inputs
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Step
from penstock.engine.transfer import upload

_ALIGNMENT = 4  # numbers: what a kernel was compiled for begins at a multiple of 16 bytes

Integers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Scores:
    """How attention scores are made; the same in all layers."""

    scale: float
    softcap: float | None


@dataclass(frozen=True, slots=True)
class StepAttention:
    """Rows with one query come first and are attended one way, chunks of prompts behind them another way."""

    scores: Scores
    room: Workspace
    decodes: DecodeBatch | None
    chunks: ChunkBatch | None

    def __call__(self, query: Tensor, cache: PagedLayer, window: int | None, out: Tensor) -> None:
        scale, softcap = self.scores.scale, self.scores.softcap
        if self.decodes is not None:
            alone = self.decodes.slots.shape[0]
            attend_decodes(
                query[:alone],
                cache,
                self.decodes,
                scale=scale,
                softcap=softcap,
                window=window,
                room=self.room,
                out=out[:alone],
            )
        if self.chunks is not None:
            attend_chunks(query, cache, self.chunks, scale=scale, softcap=softcap, window=window, out=out)


@dataclass(frozen=True, slots=True)
class RowBuffers:
    """Where the inputs of so many rows are built."""

    tokens: Tensor
    positions: Tensor
    places: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, rows: int, device: torch.device) -> RowBuffers:
        # Zeros: in a rehearsal no kernel writes what is then looked up.
        # An even number of each, so that all begin at a multiple of 16 bytes.
        wide = torch.zeros((3, rows + rows % 2), dtype=torch.int64, device=device)[:, :rows]
        lengths = torch.empty(rows, dtype=torch.int32, device=device)
        return cls(wide[0], wide[1], wide[2], lengths)

    def first(self, rows: int) -> RowBuffers:
        return RowBuffers(self.tokens[:rows], self.positions[:rows], self.places[:rows], self.lengths[:rows])

    def gather(
        self, slots: Slots, rows: Tensor, positions: Tensor, block_size: int, scratch: int
    ) -> RowInputs:
        """Of each row's slot and position: its token, and the place of its keys and values in the cache."""
        gather_inputs(
            slots.tokens,
            slots.blocks,
            rows,
            positions,
            block_size=block_size,
            scratch=scratch,
            tokens=self.tokens,
            positions=self.positions,
            places=self.places,
            lengths=self.lengths,
        )
        return RowInputs(self.tokens, self.positions, self.places)


@dataclass(frozen=True, slots=True)
class Layout:
    """The rows of a step as the host sees them."""

    slots: Integers
    starts: Integers
    counts: Integers
    alone: int  # leading sequences with one query each
    wanted: Integers | None  # rows whose hidden states are asked for; None: all

    @classmethod
    def of(cls, step: Step) -> Layout:
        counts = np.array(step.counts, dtype=np.int32)
        several = np.flatnonzero(counts > 1)
        alone = int(several[0]) if several.size else len(counts)
        wanted = None if step.wanted is None else np.array(step.wanted, dtype=np.int32)
        slots, starts = np.array(step.slots, dtype=np.int32), np.array(step.starts, dtype=np.int32)
        return cls(slots, starts, counts, alone, wanted)

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    def row_slots(self) -> Integers:
        return np.repeat(self.slots, self.counts)

    def row_positions(self) -> Integers:
        ends = np.cumsum(self.counts, dtype=np.int32)
        inside = np.arange(int(ends[-1]), dtype=np.int32) - np.repeat(ends - self.counts, self.counts)
        return inside + np.repeat(self.starts, self.counts)


def mixed_step(
    layout: Layout,
    slots: Slots,
    layer: PagedLayer,
    scores: Scores,
    room: Workspace,
    buffers: RowBuffers,
    *,
    block_size: int,
    scratch: int,
) -> tuple[RowInputs, StepAttention]:
    """The inputs of a step of any kind, in one copy to the device. `layer`: any of the cache's. Rows that the
    buffers have beyond the step's only fill it up."""
    alone = layout.alone
    size = buffers.tokens.shape[0]
    counts = layout.counts[alone:]
    first_rows = alone + np.cumsum(counts, dtype=np.int32) - counts
    tiles = chunk_tiles(layout.starts[alone:].tolist(), counts.tolist())
    parts = [
        _filled_up(layout.row_slots(), size, 0),
        _filled_up(layout.row_positions(), size, -1),
        layout.slots[:alone],
        layout.slots[alone:],
        layout.starts[alone:],
        counts,
        first_rows,
        np.array(tiles, dtype=np.int32).ravel(),
        np.zeros(0, dtype=np.int32) if layout.wanted is None else layout.wanted,
    ]
    sent = _uploaded(parts, slots.device)
    rows, positions, alone_slots, chunk_slots, starts, queries, first, flat_tiles, wanted = sent
    inputs = buffers.gather(slots, rows, positions, block_size, scratch)
    if layout.wanted is not None:
        inputs = replace(inputs, wanted=wanted.long())
    decodes = chunked = None
    if alone:
        decodes = DecodeBatch(alone_slots, buffers.lengths[:alone], slots.blocks)
        begin_decodes(layer, decodes, room)
    if counts.size:
        seen = int(layout.starts[alone:].sum() + counts.sum())
        chunked = ChunkBatch(chunk_slots, starts, queries, first, flat_tiles.view(-1, 2), slots.blocks, seen)
    return inputs, StepAttention(scores, room, decodes, chunked)


def _filled_up(numbers: Integers, size: int, value: int) -> Integers:
    filled = np.full(size, value, dtype=np.int32)
    filled[: numbers.size] = numbers
    return filled


def _uploaded(parts: list[Integers], device: torch.device) -> list[Tensor]:
    sizes = [part.size for part in parts]
    starts = np.cumsum([0, *(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)])
    packed = np.zeros(int(starts[-1]), dtype=np.int32)
    for start, part in zip(starts, parts, strict=False):
        packed[start : start + part.size] = part
    sent = upload(packed, device)
    return [sent[start : start + size] for start, size in zip(starts.tolist(), sizes, strict=False)]
