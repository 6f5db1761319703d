"""Drives a model as the runner does, without scheduler and sampler."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Room, Step, StepModel


def step_logits(
    model: StepModel,
    prompts: list[list[int]],
    chunk: int,
    positions: int | None = None,
    block_size: int = 16,
) -> list[Tensor]:
    """Logits of every position of every prompt, all prompts advancing together by `chunk` tokens a step."""
    longest = max(map(len, prompts))
    length = positions or model.config.context_length
    blocks_each = -(-longest // block_size)
    total = blocks_each * len(prompts)
    model.open(Room(total, block_size, chunk * len(prompts), length))
    slots = Slots(len(prompts), length, -(-length // block_size), model.device)
    # Scattered blocks, so that an attention that ignores the table cannot pass.
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    tables = order.view(len(prompts), blocks_each)
    slots.blocks[:, :blocks_each] = tables
    for slot, prompt in enumerate(prompts):
        slots.tokens[slot, : len(prompt)] = torch.tensor(prompt, dtype=torch.int32)
    found: list[list[Tensor]] = [[] for _ in prompts]
    for start in range(0, longest, chunk):
        granted = [
            (i, min(chunk, len(prompt) - start)) for i, prompt in enumerate(prompts) if len(prompt) > start
        ]
        owners, counts = (np.array(part, dtype=np.int32) for part in zip(*granted, strict=True))
        starts = np.full(len(granted), start, dtype=np.int32)
        step = Step(owners, starts, counts, [tables[i].tolist() for i, _ in granted])
        hidden = model.forward(step, slots).clone()
        for (owner, _), rows in zip(granted, hidden.split(counts.tolist()), strict=True):
            found[owner].append(model.logits(rows).clone())
    return [torch.cat(parts) for parts in found]
