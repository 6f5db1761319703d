"""Carries out one step plan: build inputs, forward, sample, hand back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from penstock.engine.kernels.attention import allocate_cache, copy_blocks, plan_attention
from penstock.engine.kernels.linear import CPU_MIN_ROWS
from penstock.engine.layers.sampler import ALL_BANNED, NO_TOKEN, Logprobs, logprobs_of, sample
from penstock.engine.models.decoder import Decoder, StepInputs
from penstock.engine.request import TokenLogprobs
from penstock.engine.run.slots import Slots
from penstock.engine.schedule.scheduler import Grant, StepPlan
from penstock.engine.schedule.sequence import Sequence

# Rows of the prompt whose log-probabilities are worked out at once: the logits of a long prompt are large.
LOGPROB_ROWS = 256


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a sequence came to nothing."""

    sentence: str
    invalid: bool = False  # its request is at fault, not the model or the device


_FAILURES = {
    NO_TOKEN: Failure(
        "The model's output for this request is not a number; its weights or precision are at fault."
    ),
    ALL_BANNED: Failure(
        "Every token is forbidden at this point by the request's own rules (guided_choice, "
        "allowed_token_ids, bad_words, min_tokens, processors); none can be generated.",
        invalid=True,
    ),
}


@dataclass(slots=True)
class StepResult:
    """What came of a step's sequences."""

    tokens: list[int] = field(default_factory=list)  # for each grant that samples, in the plan's order
    logprobs: dict[Sequence, TokenLogprobs] = field(default_factory=dict)
    prompt_logprobs: dict[Sequence, list[TokenLogprobs]] = field(default_factory=dict)  # whole prompts
    vectors: dict[Sequence, bytes] = field(default_factory=dict)  # float32, little-endian
    failures: dict[Sequence, Failure] = field(default_factory=dict)


class Runner:
    """The device's memory and the model on it."""

    def __init__(
        self, model: Decoder, num_blocks: int, block_size: int, max_running: int, max_model_len: int
    ) -> None:
        config = model.config
        model.prepare(max_model_len)
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
        # By slot, of prompts that are computed in several chunks.
        self._prompt_logprobs: dict[int, list[TokenLogprobs]] = {}
        self._sums: dict[int, Tensor] = {}

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        copy_blocks(self._cache, plan.copies)
        for sequence in plan.admitted:
            self._slots.load(sequence)
            # What a former owner of the slot left, who was cancelled in the middle of its prompt.
            self._prompt_logprobs.pop(sequence.slot, None)
            self._sums.pop(sequence.slot, None)
        for grant in plan.grants:
            self._slots.update_blocks(grant.sequence)
        hidden = self._model.forward(self._inputs(plan), self._cache)
        result = StepResult()
        row = 0
        for grant in plan.grants:
            if grant.sequence.reads_prompt and grant.sequence.request.params.prompt_logprobs is not None:
                self._read_prompt(grant, hidden[row : row + grant.count], result)
            if grant.sequence.request.pooling is not None:
                self._pool(grant, hidden[row : row + grant.count], result)
            row += grant.count
        self._sample(plan, hidden, result)
        return result

    def _sample(self, plan: StepPlan, hidden: Tensor, result: StepResult) -> None:
        sampling = [grant.sequence for grant in plan.grants if grant.samples]
        if not sampling:
            return
        logits = self._model.logits(hidden[self._sampled_rows(plan)])
        batch = self._slots.sampling_batch(sampling)
        sampled = sample(logits[: len(sampling)], batch)
        slots = torch.tensor([s.slot for s in sampling], device=self._model.device)
        self._slots.tokens[slots, batch.positions] = sampled.tokens.to(torch.int32)
        result.tokens = sampled.tokens.tolist()
        for sequence, token in zip(sampling, result.tokens, strict=True):
            if token < 0:
                result.failures[sequence] = _FAILURES[token]
        for row, error in sampled.failures.items():
            sentence = f"A logits processor failed: {type(error).__name__}: {error}."
            result.failures[sampling[row]] = Failure(sentence, invalid=True)
        if sampled.logprobs is not None:
            entries = _entries(sampled.logprobs)
            for row, entry in zip(batch.logprob_rows, entries, strict=True):
                wanted = sampling[row].request.params.logprobs
                result.logprobs[sampling[row]] = _cut(entry, wanted)

    def _read_prompt(self, grant: Grant, hidden: Tensor, result: StepResult) -> None:
        """Log-probabilities of the prompt tokens that follow this chunk's own."""
        sequence = grant.sequence
        wanted = sequence.request.params.prompt_logprobs
        found = self._prompt_logprobs[sequence.slot] if grant.start else []
        self._prompt_logprobs[sequence.slot] = found
        followed = min(grant.count, sequence.prompt_len - 1 - grant.start)
        for start in range(0, followed, LOGPROB_ROWS):
            end = min(start + LOGPROB_ROWS, followed)
            rows = hidden[start:end]
            if end - start < CPU_MIN_ROWS:
                rows = torch.cat((rows, rows[:1].expand(CPU_MIN_ROWS - (end - start), -1)))
            logits = self._model.logits(rows)[: end - start]
            first = grant.start + start + 1
            tokens = torch.tensor(sequence.tokens[first : first + end - start], device=logits.device)
            logprobs = logprobs_of(torch.log_softmax(logits, dim=-1), tokens, wanted or 0)
            found += [_cut(entry, wanted) for entry in _entries(logprobs)]
        if grant.completes:
            result.prompt_logprobs[sequence] = self._prompt_logprobs.pop(sequence.slot)

    def _pool(self, grant: Grant, hidden: Tensor, result: StepResult) -> None:
        """The one vector of a prompt: its last hidden state, or the mean of all."""
        sequence = grant.sequence
        if sequence.request.pooling == "mean":
            # In double precision, so that the chunks it was computed in do not show.
            part = self._model.normed(hidden).double().sum(dim=0)
            self._sums[sequence.slot] = self._sums[sequence.slot] + part if grant.start else part
        if not grant.completes:
            return
        if sequence.request.pooling == "mean":
            vector = self._sums.pop(sequence.slot) / sequence.prompt_len
        else:
            vector = self._model.normed(hidden[-1:])[0]
        if vector.isfinite().all():
            result.vectors[sequence] = vector.cpu().float().numpy().astype("<f4").tobytes()
        else:
            result.failures[sequence] = _FAILURES[NO_TOKEN]

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
            groups=plan_attention(spans, self._cache[0], self._model.config.windows),
        )

    def _sampled_rows(self, plan: StepPlan) -> Tensor:
        ends = np.cumsum([grant.count for grant in plan.grants])
        rows = [int(end) - 1 for end, grant in zip(ends, plan.grants, strict=True) if grant.samples]
        # Fewer rows than a matmul needs are made up with the first row again.
        rows += [0] * max(0, CPU_MIN_ROWS - len(rows))
        return torch.tensor(rows, device=self._model.device)


def _padded(values: Tensor, count: int, value: int) -> Tensor:
    return torch.cat((values, torch.full((count,), value, dtype=values.dtype, device=values.device)))


def _entries(logprobs: Logprobs) -> Iterator[TokenLogprobs]:
    columns = (logprobs.chosen, logprobs.top_ids, logprobs.top, logprobs.rank)
    for chosen, ids, values, rank in zip(*(column.tolist() for column in columns), strict=True):
        yield TokenLogprobs(chosen, ids, values, rank)


def _cut(entry: TokenLogprobs, wanted: int | None) -> TokenLogprobs:
    """Only as many alternatives as this sequence wants; others of the step may want more."""
    return replace(entry, top_ids=entry.top_ids[:wanted], top=entry.top[:wanted])
