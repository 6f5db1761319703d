"""Drives a model as the runner does, without scheduler and sampler."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Room, Step, StepModel


class Stepper:
    """A model that is open, with prompts in slots and blocks."""

    def __init__(
        self,
        model: StepModel,
        prompts: list[list[int]],
        max_rows: int,
        positions: int | None = None,
        block_size: int = 16,
    ) -> None:
        length = positions or model.config.context_length
        blocks_each = -(-max(map(len, prompts)) // block_size)
        total = blocks_each * len(prompts)
        model.open(Room(total, block_size, max_rows, length))
        self.model = model
        self.slots = Slots(len(prompts), length, -(-length // block_size), model.device)
        # Scattered blocks, so that an attention that ignores the table cannot pass.
        order = torch.randperm(total, generator=torch.Generator().manual_seed(0), dtype=torch.int32)
        self.tables = order.view(len(prompts), blocks_each)
        self.slots.blocks[:, :blocks_each] = self.tables
        for slot, prompt in enumerate(prompts):
            self.slots.tokens[slot, : len(prompt)] = torch.tensor(prompt, dtype=torch.int32)

    def step(self, granted: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        """Hidden states of each (slot, first position, number of tokens)."""
        slots, starts, counts = zip(*granted, strict=True)
        step = Step(slots, starts, counts, [self.tables[slot].tolist() for slot in slots])
        return list(self.model.forward(step, self.slots).clone().split(list(counts)))


def step_logits(
    model: StepModel,
    prompts: list[list[int]],
    chunk: int,
    positions: int | None = None,
    block_size: int = 16,
) -> list[Tensor]:
    """Logits of every position of every prompt, all prompts advancing together by `chunk` tokens a step."""
    stepper = Stepper(model, prompts, chunk * len(prompts), positions, block_size)
    found: list[list[Tensor]] = [[] for _ in prompts]
    for start in range(0, max(map(len, prompts)), chunk):
        granted = [
            (slot, start, min(chunk, len(prompt) - start))
            for slot, prompt in enumerate(prompts)
            if len(prompt) > start
        ]
        for (slot, _, _), rows in zip(granted, stepper.step(granted), strict=True):
            found[slot] += [model.logits(part).clone() for part in rows.split(256)]
    return [torch.cat(parts) for parts in found]
