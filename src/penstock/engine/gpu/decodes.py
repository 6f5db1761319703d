"""Steps in which every sequence computes one token and draws the next: the same launches again and again, so
they are captured. Their inputs lie where they always lie; a step only says whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.engine.gpu.batch import DecodeBatch
from penstock.engine.gpu.cache import PagedLayer
from penstock.engine.gpu.decoder import GpuDecoder
from penstock.engine.gpu.graphs import Graphs, Kind, padded_size
from penstock.engine.gpu.inputs import RowBuffers, Scores, StepAttention
from penstock.engine.gpu.kernels.decode_attention import MOST_SPLITS, Workspace, begin_decodes, processors
from penstock.engine.gpu.kernels.decode_prefixes import choose_shared_splits
from penstock.engine.gpu.kernels.sampling import draw
from penstock.engine.gpu.prefixes import PrefixPlanner
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Step
from penstock.engine.transfer import send

# One of each size that has kernels of its own: one row, few, more, many.
WARM_SIZES = (1, 2, 16, 24, 256)


class Decodes:
    def __init__(
        self,
        decoder: GpuDecoder,
        cache: Sequence[PagedLayer],
        slots: Slots,
        scores: Scores,
        room: Workspace,
        *,
        block_size: int,
        scratch: int,
        graphs: Graphs | None,
        shares: bool,
    ) -> None:
        """`scratch`: where padding is written. `graphs`: without them a step is launched kernel by kernel.
        `shares`: prefixes in common are read once for all."""
        self._decoder = decoder
        self._cache = cache
        self._slots = slots
        self._scores = scores
        self._room = room
        self._block_size = block_size
        self._scratch = scratch
        # The last slot is nobody's: rows that only fill a step up have it.
        self._most = slots.tokens.shape[0] - 1
        self._whose = torch.zeros((3, self._most), dtype=torch.int32, device=slots.device)
        self._rows = RowBuffers.of(self._most, slots.device)
        self._drawn = torch.empty(self._most, dtype=torch.int64, device=slots.device)
        self._prefixes = PrefixPlanner(self._most, block_size, slots.device) if shares else None
        self._graphs = graphs

    def warm_up(self) -> None:
        """Compute steps of nobody, one of each kind that has kernels of its own."""
        self._whose[0], self._whose[1], self._whose[2] = self._most, -1, 0
        for size in sorted({min(size, self._most) for size in WARM_SIZES}):
            self._compute(Kind(size, 0, 0, filtered=False))
        self._compute(Kind(1, 0, 0, filtered=True))
        self._draw(
            torch.zeros((1, self._decoder.config.vocab_size), device=self._slots.device), filtered=False
        )
        if self._prefixes is not None:
            self._compute(Kind(min(WARM_SIZES[-1], self._most), 1, 1, filtered=False))

    def run(self, step: Step) -> Tensor:
        """The drawn tokens, until the next run."""
        sequences = len(step.slots)
        kind = self._kind(step, padded_size(sequences, self._most))
        # Slot, position of the token that is computed, position of the one that is drawn.
        whose = np.empty((3, self._most), dtype=np.int32)
        whose[0, sequences:], whose[1, sequences:], whose[2, sequences:] = self._most, -1, 0
        whose[0, :sequences] = step.slots
        whose[1, :sequences] = step.starts
        whose[2, :sequences] = whose[1, :sequences] + 1
        send(whose, self._whose)
        if self._graphs is None:
            self._compute(kind)
        else:
            self._graphs.run(kind, lambda: self._compute(kind))
        return self._drawn[:sequences]

    def _kind(self, step: Step, size: int) -> Kind:
        filtered = not self._slots.parameters.filtered.isdisjoint(step.slots)
        tiles = shared_splits = 0
        if self._prefixes is not None:
            self._prefixes.plan(step, self._slots)
            tiles = self._prefixes.tiles
        if tiles and self._prefixes is not None:
            kv_heads, where = self._decoder.config.num_kv_heads, self._slots.device
            wanted = choose_shared_splits(tiles, kv_heads, self._prefixes.longest, processors(where))
            shared_splits = min(wanted, MOST_SPLITS)
        return Kind(size, tiles, shared_splits, filtered)

    def _compute(self, kind: Kind) -> None:
        slots, starts, _ = self._whose[:, : kind.size]
        rows = self._rows.first(kind.size)
        inputs = rows.gather(self._slots, slots, starts, self._block_size, self._scratch)
        shared = None
        if kind.tiles:
            assert self._prefixes is not None
            shared = self._prefixes.on_device(kind.size, kind.shared_splits)
        batch = DecodeBatch(slots, rows.lengths, self._slots.blocks, shared)
        begin_decodes(self._cache[0], batch, self._room)
        hidden = self._decoder.forward(
            inputs, self._cache, StepAttention(self._scores, self._room, batch, None)
        )
        self._draw(self._decoder.logits(hidden), filtered=kind.filtered)

    def _draw(self, logits: Tensor, *, filtered: bool) -> None:
        rows = logits.shape[0]
        slots, _, following = self._whose[:, :rows]
        draw(
            logits,
            self._slots.parameters,
            slots,
            following,
            filtered=filtered,
            out=self._drawn[:rows],
            tokens_table=self._slots.tokens,
        )
