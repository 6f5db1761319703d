"""What a model on a device is asked for: all granted tokens of all sequences, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from penstock.engine.layers.sampler import Drawer
from penstock.engine.models.config import DecoderConfig
from penstock.engine.run.slots import Slots


@dataclass(frozen=True, slots=True)
class Step:
    """One entry for each sequence; `slots` says where its tokens and blocks are."""

    slots: Sequence[int]
    starts: Sequence[int]  # position of the first granted token
    counts: Sequence[int]  # granted tokens
    tables: Sequence[Sequence[int]]  # blocks
    wanted: Sequence[int] | None = None  # rows whose hidden states are asked for; None: all


@dataclass(frozen=True, slots=True)
class Room:
    """How much a model must be ready for."""

    num_blocks: int
    block_size: int
    max_rows: int  # of one step
    max_model_len: int


class StepModel(Protocol):
    """A decoder on its device, with its cache."""

    config: DecoderConfig
    device: torch.device
    precision: str
    kv_bytes_per_token: int  # of the cache, in all layers
    drawer: Drawer  # of tokens from its logits
    overlaps: bool  # it returns before the device is done, so that a step can be prepared meanwhile

    @property
    def weight_bytes(self) -> int:
        """All matrices but the embedding, which is only looked up. A step reads them all, but for experts
        that none of its tokens chose."""

    @property
    def weight_count(self) -> int:
        """Numbers in those matrices."""

    def open(self, room: Room) -> None:
        """Allocate the cache and whatever a step needs; before the first step."""

    def make_ready(self, slots: Slots) -> None:
        """Do what the first steps on these slots would otherwise wait for; after `open`."""

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy blocks of the cache in all layers: (from, to), one after another."""

    def forward(self, step: Step, slots: Slots) -> Tensor:
        """The hidden states of the wanted rows after the last layer, [rows, hidden size], until the next
        call."""

    @property
    def decode(self) -> Callable[[Step, Slots], Tensor] | None:
        """A shorter way, if there is one, for steps in which everybody computes one token and draws the next:
        the drawn tokens, which are also in their slots."""

    def activation_bytes(self, max_rows: int, max_running: int, block_size: int, max_len: int) -> int:
        """Memory of the device that slots of `max_len` tokens and the largest step need beside weights and
        cache; before `open`."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Of rows that `forward` gave; [rows, vocabulary], until the next call."""

    def normed(self, hidden: Tensor) -> Tensor:
        """Hidden states after the final norm, as embeddings are made of."""
