"""Carries out one step plan: build inputs, forward, sample, hand back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from penstock.engine.kernels.attention import allocate_cache, copy_blocks, plan_attention
from penstock.engine.kernels.linear import CPU_MIN_ROWS
from penstock.engine.layers.sampler import Sampled, sample
from penstock.engine.models.decoder import Decoder, StepInputs
from penstock.engine.request import TokenLogprobs
from penstock.engine.run.slots import Slots
from penstock.engine.schedule.scheduler import StepPlan
from penstock.engine.schedule.sequence import Sequence


@dataclass(slots=True)
class StepResult:
    """One entry for each grant that samples, in the plan's order."""

    tokens: list[int]
    logprobs: list[TokenLogprobs | None]


class Runner:
    """The device's memory and the model on it."""

    def __init__(
        self, model: Decoder, num_blocks: int, block_size: int, max_running: int, max_model_len: int
    ) -> None:
        config = model.config
        model.rotary.prepare(max_model_len)
        self._model = model
        self._block_size = block_size
        # One block more than the scheduler knows of: padding is written there.
        self._scratch_block = num_blocks
        self._cache = allocate_cache(
            config.num_layers,
            config.num_kv_heads,
            num_blocks + 1,
            block_size,
            config.head_dim,
            model.dtype,
            model.device,
        )
        self._slots = Slots(max_running, max_model_len, -(-max_model_len // block_size), model.device)

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        copy_blocks(self._cache, plan.copies)
        for sequence in plan.admitted:
            self._slots.load(sequence)
        for grant in plan.grants:
            self._slots.update_blocks(grant.sequence)
        sampling = [grant.sequence for grant in plan.grants if grant.samples]
        hidden = self._model.forward(self._inputs(plan), self._cache)
        if not sampling:
            return StepResult([], [])
        logits = self._model.logits(hidden[self._sampled_rows(plan)])
        batch = self._slots.sampling_batch(sampling)
        sampled = sample(logits[: len(sampling)], batch)
        slots = torch.tensor([s.slot for s in sampling], device=self._model.device)
        self._slots.tokens[slots, batch.positions] = sampled.tokens.to(torch.int32)
        return StepResult(sampled.tokens.tolist(), _logprobs(sampling, batch.logprob_rows, sampled))

    def _inputs(self, plan: StepPlan) -> StepInputs:
        device, size = self._model.device, self._block_size
        counts = np.array([grant.count for grant in plan.grants])
        starts = np.array([grant.start for grant in plan.grants])
        ends = np.cumsum(counts)
        total = int(ends[-1])
        positions = np.arange(total) + np.repeat(starts - (ends - counts), counts)
        slots = np.repeat(np.array([grant.sequence.slot for grant in plan.grants]), counts)
        slot_rows = torch.from_numpy(slots).to(device)
        position_rows = torch.from_numpy(positions).to(device)
        tokens = self._slots.tokens[slot_rows, position_rows]
        places = self._slots.blocks[slot_rows, position_rows // size].long() * size + position_rows % size
        padding = max(0, CPU_MIN_ROWS - total)
        if padding:
            tokens = _padded(tokens, padding, 0)
            position_rows = _padded(position_rows, padding, 0)
            places = _padded(places, padding, self._scratch_block * size)
        spans = [(grant.start, grant.count, grant.sequence.table.blocks) for grant in plan.grants]
        return StepInputs(
            tokens=tokens,
            positions=position_rows,
            places=places,
            groups=plan_attention(spans, self._cache[0]),
        )

    def _sampled_rows(self, plan: StepPlan) -> Tensor:
        ends = np.cumsum([grant.count for grant in plan.grants])
        rows = [int(end) - 1 for end, grant in zip(ends, plan.grants, strict=True) if grant.samples]
        # Fewer rows than a matmul needs are made up with the first row again.
        rows += [0] * max(0, CPU_MIN_ROWS - len(rows))
        return torch.tensor(rows, device=self._model.device)


def _padded(values: Tensor, count: int, value: int) -> Tensor:
    return torch.cat((values, torch.full((count,), value, dtype=values.dtype, device=values.device)))


def _logprobs(sequences: list[Sequence], rows: list[int], sampled: Sampled) -> list[TokenLogprobs | None]:
    found: list[TokenLogprobs | None] = [None] * len(sequences)
    if sampled.chosen is None or sampled.top_ids is None or sampled.top is None:
        return found
    columns = zip(rows, sampled.chosen.tolist(), sampled.top_ids.tolist(), sampled.top.tolist(), strict=True)
    for row, chosen, ids, values in columns:
        wanted = sequences[row].request.params.logprobs
        found[row] = TokenLogprobs(chosen, ids[:wanted], values[:wanted])
    return found
