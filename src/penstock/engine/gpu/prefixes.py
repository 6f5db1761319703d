"""Prefixes that decodes of a step share, on the device: worked out again only when the batch changes."""

from __future__ import annotations

import numpy as np
import torch

from penstock.engine.gpu.batch import TILE_MEMBERS, SharedPrefixes
from penstock.engine.memory.sharing import shared_prefixes
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Step
from penstock.engine.transfer import upload

LEAST_MEMBERS = 4
LEAST_TOKENS = 256  # below, reading them apart costs less than joining what was read


class PrefixPlanner:
    """Keeps the arrays that captured steps read."""

    def __init__(self, max_sequences: int, block_size: int, device: torch.device) -> None:
        self._block_size = block_size
        self._device = device
        self._most_tiles = -(-max_sequences // LEAST_MEMBERS)
        self._lengths = torch.zeros(max_sequences, dtype=torch.int32, device=device)
        self._members = torch.full((self._most_tiles, TILE_MEMBERS), -1, dtype=torch.int32, device=device)
        self._tiles = torch.zeros((2, self._most_tiles), dtype=torch.int32, device=device)
        self._known: object = None
        self._used = 0
        self._longest = 0

    def plan(self, step: Step, slots: Slots) -> None:
        """Look for shared prefixes, unless everybody is where they were."""
        known = (slots.loads, step.slots)
        if known == self._known:
            return
        size = self._block_size
        # Whole blocks that all members only read.
        tables = [table[: start // size] for table, start in zip(step.tables, step.starts, strict=True)]
        groups = shared_prefixes(tables, size, least_tokens=LEAST_TOKENS, least_members=LEAST_MEMBERS)
        lengths = np.zeros(self._lengths.shape[0], dtype=np.int32)
        members = np.full((self._most_tiles, TILE_MEMBERS), -1, dtype=np.int32)
        tiles = np.zeros((2, self._most_tiles), dtype=np.int32)
        used = 0
        for group in groups:
            span = group.blocks * size
            lengths[group.members] = span
            for first in range(0, len(group.members), TILE_MEMBERS):
                part = group.members[first : first + TILE_MEMBERS]
                members[used, : len(part)] = part
                tiles[:, used] = step.slots[part[0]], span
                used += 1
        self._longest = int(tiles[1].max()) if used else 0
        if used or self._used:
            self._lengths.copy_(upload(lengths, self._device), non_blocking=True)
            self._members.copy_(upload(members, self._device), non_blocking=True)
            self._tiles.copy_(upload(tiles, self._device), non_blocking=True)
        self._used = used
        self._known = known  # last: a plan that failed is made again

    @property
    def tiles(self) -> int:
        """How many there are, up to the next power of two; 0: nobody shares anything."""
        return 0 if not self._used else min(1 << (self._used - 1).bit_length(), self._most_tiles)

    @property
    def longest(self) -> int:
        """Tokens of the longest shared prefix."""
        return self._longest

    def on_device(self, sequences: int, splits: int) -> SharedPrefixes:
        tiles = self.tiles
        return SharedPrefixes(
            self._lengths[:sequences],
            self._members[:tiles],
            self._tiles[0, :tiles],
            self._tiles[1, :tiles],
            splits,
        )
