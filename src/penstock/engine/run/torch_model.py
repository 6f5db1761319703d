"""A decoder in torch, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from penstock.engine.kernels.attention import KVLayer, allocate_cache, copy_blocks, plan_attention
from penstock.engine.kernels.linear import CPU_MIN_ROWS
from penstock.engine.layers.sampler import Drawer, TorchDrawer, indices
from penstock.engine.models.decoder import Decoder, StepInputs
from penstock.engine.native.sampling import open_drawer
from penstock.engine.run.defaults import ACTIVATION_BYTES
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Room, Step


class TorchModel:
    overlaps = False
    decode = None

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.config = decoder.config
        self.device = decoder.device
        self.precision = str(decoder.dtype).removeprefix("torch.")
        self.kv_bytes_per_token = decoder.config.kv_bytes_per_token(decoder.dtype.itemsize)
        self.drawer = _drawer(decoder.device)
        self._cache: list[KVLayer] = []
        self._block_size = self._scratch_block = 0

    @property
    def weight_bytes(self) -> int:
        return self._decoder.weight_bytes

    @property
    def weight_count(self) -> int:
        return self._decoder.weight_bytes // self._decoder.dtype.itemsize

    def open(self, room: Room) -> None:
        config = self.config
        self._decoder.prepare(room.max_model_len)
        self._block_size = room.block_size
        # One block more than the scheduler knows of: padding is written there.
        self._scratch_block = room.num_blocks
        self._cache = allocate_cache(
            config.num_layers,
            config.num_kv_heads,
            room.num_blocks + 1,
            room.block_size,
            config.head_dim,
            self._decoder.dtype,
            self.device,
        )

    def make_ready(self, slots: Slots) -> None:
        pass

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        copy_blocks(self._cache, copies)

    def forward(self, step: Step, slots: Slots) -> Tensor:
        hidden = self._decoder.forward(self._inputs(step, slots), self._cache)
        return (
            hidden if step.wanted is None else hidden.index_select(0, indices(list(step.wanted), self.device))
        )

    def activation_bytes(self, max_rows: int, max_running: int, block_size: int, max_len: int) -> int:
        return ACTIVATION_BYTES

    def logits(self, hidden: Tensor) -> Tensor:
        rows = hidden.shape[0]
        if rows < CPU_MIN_ROWS:
            hidden = torch.cat((hidden, hidden[:1].expand(CPU_MIN_ROWS - rows, -1)))
        return self._decoder.logits(hidden)[:rows]

    def normed(self, hidden: Tensor) -> Tensor:
        return self._decoder.normed(hidden)

    def _inputs(self, step: Step, slots: Slots) -> StepInputs:
        size = self._block_size
        counts, starts = np.array(step.counts), np.array(step.starts)
        ends = np.cumsum(counts)
        total = int(ends[-1])
        positions = np.arange(total) + np.repeat(starts - (ends - counts), counts)
        slot_rows = torch.from_numpy(np.repeat(np.array(step.slots), counts)).to(self.device)
        position_rows = torch.from_numpy(positions).to(self.device)
        tokens = slots.tokens[slot_rows, position_rows]
        places = slots.blocks[slot_rows, position_rows // size].long() * size + position_rows % size
        padding = max(0, CPU_MIN_ROWS - total)
        if padding:
            tokens = _padded(tokens, padding, 0)
            position_rows = _padded(position_rows, padding, 0)
            places = _padded(places, padding, self._scratch_block * size)
        spans = list(zip(step.starts, step.counts, step.tables, strict=True))
        return StepInputs(
            tokens=tokens,
            positions=position_rows,
            places=places,
            groups=plan_attention(spans, self._cache[0], self.config.windows),
        )


def _drawer(device: torch.device) -> Drawer:
    native = open_drawer(torch.get_num_threads()) if device.type == "cpu" else None
    return native or TorchDrawer()


def _padded(values: Tensor, count: int, value: int) -> Tensor:
    return torch.cat((values, torch.full((count,), value, dtype=values.dtype, device=values.device)))
