"""Carries out step plans: build inputs, forward, sample; hand back what came of it when it is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from penstock.engine.failures import OutOfDeviceMemory
from penstock.engine.layers.sampler import ALL_BANNED, NO_TOKEN, Logprobs, indices, sample
from penstock.engine.request import TokenLogprobs
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Room, Step, StepModel
from penstock.engine.schedule.scheduler import Grant, StepPlan
from penstock.engine.schedule.sequence import Sequence
from penstock.engine.transfer import current, download, fetch

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


Entries = Callable[[], list[TokenLogprobs]]


@dataclass(slots=True)
class Launched:
    """A step on its way: the device may not have come to it yet. What is called waits for it, and for no
    later one."""

    sampling: list[Sequence] = field(default_factory=list)
    tokens: Callable[[], list[int]] = list
    failures: dict[int, Exception] = field(default_factory=dict)  # of `sampling` -> what a processor raised
    asking: list[Sequence] = field(default_factory=list)
    logprobs: Entries = list  # of those who ask
    prompt_logprobs: dict[Sequence, list[Entries]] = field(default_factory=dict)  # in pieces
    pooled: list[Sequence] = field(default_factory=list)
    vectors: Callable[[], Tensor] | None = None  # a row for each that is pooled


class Runner:
    """The device's memory and the model on it. Steps are computed in the order in which they are launched."""

    def __init__(self, model: StepModel, room: Room, max_running: int) -> None:
        self._model = model
        with self._memory_errors():
            model.open(room)
            max_blocks = -(-room.max_model_len // room.block_size)
            # One slot more than the scheduler knows of, for rows that only fill a step up.
            self._slots = Slots(max_running + 1, room.max_model_len, max_blocks, model.device)
            self._make_ready()
        # By slot, of prompts that are computed in several chunks.
        self._prompt_logprobs: dict[int, list[Entries]] = {}
        self._sums: dict[int, Tensor] = {}

    @torch.inference_mode()
    def _make_ready(self) -> None:
        self._model.make_ready(self._slots)

    @contextmanager
    def _memory_errors(self) -> Iterator[None]:
        """Work on the model's device, and say its want of memory without torch."""
        try:
            with current(self._model.device):
                yield
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise OutOfDeviceMemory(str(error)) from None

    @property
    def overlaps(self) -> bool:
        """Whether a launched step goes on by itself: the next may be launched before it is collected."""
        return self._model.overlaps

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> Launched:
        """Begin a step. Whoever takes part without a known last token must not need it on the host."""
        with self._memory_errors():
            self._model.copy_blocks(plan.copies)
            if plan.admitted:
                self._slots.load(plan.admitted)
                for sequence in plan.admitted:
                    # What a former owner of the slot left, who was cancelled in the middle of its prompt.
                    self._prompt_logprobs.pop(sequence.slot, None)
                    self._sums.pop(sequence.slot, None)
            self._slots.update_blocks([grant.sequence for grant in plan.grants])
            return self._decode(plan) or self._compute(plan)

    @torch.inference_mode()
    def collect(self, launched: Launched) -> StepResult:
        """What came of a step, once it is done."""
        result, sampling = StepResult(), launched.sampling
        with self._memory_errors():
            result.tokens = launched.tokens()
        if result.tokens and min(result.tokens) < 0:
            drawn = zip(sampling, result.tokens, strict=True)
            result.failures |= {sequence: _FAILURES[token] for sequence, token in drawn if token < 0}
        for row, error in launched.failures.items():
            sentence = f"A logits processor failed: {type(error).__name__}: {error}."
            result.failures[sampling[row]] = Failure(sentence, invalid=True)
        if launched.asking:
            result.logprobs.update(zip(launched.asking, launched.logprobs(), strict=True))
        for sequence, pieces in launched.prompt_logprobs.items():
            result.prompt_logprobs[sequence] = [entry for piece in pieces for entry in piece()]
        if launched.vectors is not None:
            for sequence, vector in zip(launched.pooled, launched.vectors().numpy(), strict=True):
                if np.isfinite(vector).all():
                    result.vectors[sequence] = vector.astype("<f4").tobytes()
                else:
                    result.failures[sequence] = _FAILURES[NO_TOKEN]
        return result

    def _decode(self, plan: StepPlan) -> Launched | None:
        """A step in which everybody computes and draws one token, if the model has a shorter way for it."""
        grants = plan.grants
        decode = self._model.decode
        if decode is None or plan.num_tokens != len(grants):
            return None
        slots = [grant.sequence.slot for grant in grants]
        if not all(grant.samples for grant in grants) or self._slots.has_special(slots):
            return None
        tokens = decode(_step(plan), self._slots)
        return Launched([grant.sequence for grant in grants], download(tokens))

    def _compute(self, plan: StepPlan) -> Launched:
        launched = Launched()
        sampling = [grant for grant in plan.grants if grant.samples]
        if any(_reads_rows(grant.sequence) for grant in plan.grants):
            hidden = self._model.forward(_step(plan), self._slots)
            self._read(plan, hidden, launched)
            hidden = hidden.index_select(0, indices(_sampled_rows(plan), hidden.device))
        else:
            # Every row is sampled, or most are not: then the model may leave out what only they would need.
            every = plan.num_tokens == len(sampling)
            hidden = self._model.forward(_step(plan, None if every else _sampled_rows(plan)), self._slots)
        if sampling:
            self._sample(sampling, hidden, launched)
        return launched

    def _sample(self, sampling: list[Grant], hidden: Tensor, launched: Launched) -> None:
        launched.sampling = [grant.sequence for grant in sampling]
        positions = [grant.start + grant.count for grant in sampling]
        batch = self._slots.sampling_batch(launched.sampling, positions)
        logits = self._model.logits(hidden[: len(sampling)])
        if batch.changed_rows or batch.logprob_rows:
            logits = logits.float()
        sampled = sample(logits, batch, self._model.drawer)
        self._slots.append(batch, sampled.tokens)
        launched.tokens = download(sampled.tokens)
        launched.failures = sampled.failures
        if sampled.logprobs is not None:
            launched.asking = [launched.sampling[row] for row in batch.logprob_rows]
            wanted = [sequence.request.params.logprobs for sequence in launched.asking]
            launched.logprobs = _entries(sampled.logprobs, wanted)

    def _read(self, plan: StepPlan, hidden: Tensor, launched: Launched) -> None:
        """What is wanted of whole prompts."""
        row, vectors = 0, []
        for grant in plan.grants:
            if grant.sequence.reads_prompt and grant.sequence.request.params.prompt_logprobs is not None:
                self._read_prompt(grant, hidden[row : row + grant.count], launched)
            if grant.sequence.request.pooling is not None:
                vector = self._pool(grant, hidden[row : row + grant.count])
                if vector is not None:
                    launched.pooled.append(grant.sequence)
                    vectors.append(vector)
            row += grant.count
        if vectors:
            launched.vectors = fetch(torch.stack(vectors))

    def _read_prompt(self, grant: Grant, hidden: Tensor, launched: Launched) -> None:
        """Log-probabilities of the prompt tokens that follow this chunk's own."""
        sequence = grant.sequence
        wanted = sequence.request.params.prompt_logprobs
        found = self._prompt_logprobs[sequence.slot] if grant.start else []
        self._prompt_logprobs[sequence.slot] = found
        followed = min(grant.count, sequence.prompt_len - 1 - grant.start)
        for start in range(0, followed, LOGPROB_ROWS):
            end = min(start + LOGPROB_ROWS, followed)
            logits = self._model.logits(hidden[start:end]).float()
            first = grant.start + start + 1
            tokens = indices(sequence.tokens[first : first + end - start], logits.device)
            logprobs = self._model.drawer.logprobs(logits, tokens, wanted or 0)
            found.append(_entries(logprobs, [wanted] * (end - start)))
        if grant.completes:
            launched.prompt_logprobs[sequence] = self._prompt_logprobs.pop(sequence.slot)

    def _pool(self, grant: Grant, hidden: Tensor) -> Tensor | None:
        """The one vector of a prompt, once it is complete: its last hidden state, or the mean of all."""
        sequence = grant.sequence
        if sequence.request.pooling == "mean":
            # In double precision, so that the chunks it was computed in do not show.
            part = self._model.normed(hidden).double().sum(dim=0)
            self._sums[sequence.slot] = self._sums[sequence.slot] + part if grant.start else part
        if not grant.completes:
            return None
        if sequence.request.pooling == "mean":
            vector = self._sums.pop(sequence.slot) / sequence.prompt_len
        else:
            vector = self._model.normed(hidden[-1:])[0]
        return vector.float()


def _reads_rows(sequence: Sequence) -> bool:
    """Whether more is wanted of it than the token that follows."""
    return sequence.reads_prompt or sequence.request.pooling is not None


def _sampled_rows(plan: StepPlan) -> list[int]:
    """The last row of each grant that samples."""
    ends = itertools.accumulate(grant.count for grant in plan.grants)
    return [end - 1 for grant, end in zip(plan.grants, ends, strict=True) if grant.samples]


def _step(plan: StepPlan, wanted: list[int] | None = None) -> Step:
    grants = plan.grants
    return Step(
        slots=[grant.sequence.slot for grant in grants],
        starts=[grant.start for grant in grants],
        counts=[grant.count for grant in grants],
        tables=[grant.sequence.table.blocks for grant in grants],
        wanted=wanted,
    )


def _entries(logprobs: Logprobs, wanted: list[int | None]) -> Entries:
    """Each with only as many alternatives as its sequence wants; others of the step may want more."""
    columns = [download(c) for c in (logprobs.chosen, logprobs.top_ids, logprobs.top, logprobs.rank)]

    def wait() -> list[TokenLogprobs]:
        values = (column() for column in columns)
        return [
            TokenLogprobs(chosen, ids[:most], top[:most], rank)
            for most, chosen, ids, top, rank in zip(wanted, *values, strict=True)
        ]

    return wait
