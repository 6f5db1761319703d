"""Rows to sample as the engine makes them: real sequences in real slots, made-up logits."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from penstock.engine.layers.sampler import Drawer, Sampled, SamplingBatch, TorchDrawer, sample
from penstock.engine.memory.manager import KVMemory
from penstock.engine.request import Request, SamplingParams
from penstock.engine.run.slots import Slots
from penstock.engine.schedule.sequence import Sequence

CPU = torch.device("cpu")
drawer: Drawer = TorchDrawer()  # that `draw` uses; tests put others here


@dataclass(frozen=True)
class Row:
    """One sequence that is about to sample."""

    params: SamplingParams
    prompt: tuple[int, ...] = (0,)
    output: tuple[int, ...] = ()
    eos: tuple[int, ...] = ()
    index: int = 0

    @property
    def position(self) -> int:
        return len(self.prompt) + len(self.output)


def row(
    *,
    prompt: tuple[int, ...] = (0,),
    output: tuple[int, ...] = (),
    eos: tuple[int, ...] = (),
    **params: object,
) -> Row:
    return Row(SamplingParams(**{"seed": 0, **params}), prompt, output, eos)


def rows_at_positions(count: int, first: int = 1, **params: object) -> list[Row]:
    """As one sequence would draw, token after token: same parameters, successive positions."""
    one = row(**params)
    return [replace(one, prompt=(0,) * position) for position in range(first, first + count)]


def batch_of(rows: Many[Row]) -> SamplingBatch:
    longest = max(r.position for r in rows)
    slots = Slots(len(rows), longest, 1, CPU)
    slots.tokens.fill_(1)  # what a former sequence left there
    sequences = [sequence_of(r, slot) for slot, r in enumerate(rows)]
    slots.load(sequences)
    return slots.sampling_batch(sequences, [r.position for r in rows])


def sequence_of(r: Row, slot: int) -> Sequence:
    request = Request(id=str(slot), prompt=list(r.prompt), params=r.params, eos_token_ids=r.eos)
    known = [*r.prompt, *r.output]
    table = KVMemory(1, 1).new_table("")
    return Sequence(request, r.index, (0.0, slot), 0.0, known, len(known) + 1, table, slot=slot)


def draw(logits: Tensor, rows: Many[Row]) -> Sampled:
    """Sample one token for each row; a single row of logits serves them all. `logits` is left alone."""
    return sample(logits.expand(len(rows), -1).clone(), batch_of(rows), drawer)


def tokens(logits: Tensor, rows: Many[Row]) -> list[int]:
    return draw(logits, rows).tokens.tolist()
