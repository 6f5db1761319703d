"""Permanent places on the device, one for each running sequence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from penstock.engine.layers.noise import choice_seed
from penstock.engine.layers.sampler import Parameters, Penalties, SamplingBatch, indices
from penstock.engine.request import SamplingParams
from penstock.engine.schedule.sequence import Sequence
from penstock.engine.transfer import upload, write_rows

_TEMPERATURE, _TOP_P, _MIN_P, _REPETITION, _PRESENCE, _FREQUENCY = range(6)
_SEED, _TOP_K, _PROMPT = range(3)
# Below it, zero by zero would come of logits that are equal.
_LEAST_TEMPERATURE = 1e-30


class Slots:
    """Tokens, block numbers and sampling parameters by slot.

    A sampled token is written here by the device itself, so that the next step's inputs need
    nothing from the host but which slots take part.
    """

    def __init__(self, count: int, max_len: int, max_blocks: int, device: torch.device) -> None:
        self.device = device
        self.tokens = torch.zeros((count, max_len + 1), dtype=torch.int32, device=device)
        # The same memory, where the device is the host: a few numbers are written several times as fast.
        self._host_tokens = memoryview(self.tokens.numpy()) if device.type == "cpu" else None
        self.blocks = torch.zeros((count, max_blocks), dtype=torch.int32, device=device)
        self._floats = torch.zeros((6, count), dtype=torch.float32, device=device)
        self._ints = torch.zeros((3, count), dtype=torch.int64, device=device)
        self._parameters = Parameters(
            temperature=self._floats[_TEMPERATURE],
            top_k=self._ints[_TOP_K],
            top_p=self._floats[_TOP_P],
            min_p=self._floats[_MIN_P],
            seeds=self._ints[_SEED],
            random=set(),
            filtered=set(),
        )
        # Slots that want more than that: a step looks closer at no others.
        self._special: set[int] = set()
        self._bias: dict[int, tuple[Tensor, Tensor]] = {}
        self._ends: dict[int, Tensor] = {}  # ids banned before min_tokens
        self._allowed: dict[int, Tensor] = {}
        self._bad_tokens: dict[int, Tensor] = {}  # bad words of one token
        # Longer ones by the token before their last, so that a step looks only at those it could complete.
        self._bad_words: dict[int, dict[int, list[list[int]]]] = {}
        self.loads = 0  # sequences so far: while it stays, every slot has the owner it had

    def load(self, sequences: list[Sequence]) -> None:
        """Set slots up for sequences that have just been given them."""
        slots: list[int] = []
        floats, ints = [], []
        for sequence in sequences:
            params = sequence.request.params
            random = params.temperature > 0
            slots.append(sequence.slot)
            floats.append(
                (
                    max(params.temperature, _LEAST_TEMPERATURE) if random else 0.0,
                    params.top_p,
                    params.min_p,
                    # Beyond these a float32 logit would become infinite, or zero by zero.
                    min(max(params.repetition_penalty, 1e-6), 1e6),
                    params.presence_penalty,
                    params.frequency_penalty,
                )
            )
            assert params.seed is not None, "the core draws a seed before it submits"
            seed = choice_seed(params.seed, sequence.index)
            ints.append((seed, max(params.top_k, 0), sequence.prompt_len))
            filtered = random and (params.top_k > 0 or params.top_p < 1 or params.min_p > 0)
            _mark(self._parameters.random, sequence.slot, random)
            _mark(self._parameters.filtered, sequence.slot, filtered)
            self._load_special(sequence)
        places = indices(slots, self.device)
        self._floats[:, places] = upload(np.array(floats, dtype=np.float32).T, self.device)
        self._ints[:, places] = upload(np.array(ints, dtype=np.int64).T, self.device)
        write_rows(self.tokens, [(s.slot, 0, s.tokens) for s in sequences])
        self.loads += len(slots)

    def _load_special(self, sequence: Sequence) -> None:
        slot, params = sequence.slot, sequence.request.params
        for kept in (self._bias, self._ends, self._allowed, self._bad_tokens, self._bad_words):
            kept.pop(slot, None)
        if params.logit_bias:
            tokens, biases = zip(*sorted(params.logit_bias.items()), strict=True)
            values = upload(np.array(biases, dtype=np.float32), self.device)
            self._bias[slot] = indices(tokens, self.device), values
        if params.min_tokens:
            self._ends[slot] = self._ids(sequence.ends)
        if params.allowed_token_ids:
            self._allowed[slot] = self._ids(params.allowed_token_ids)
        if bad := [word[0] for word in sequence.request.bad_words if len(word) == 1]:
            self._bad_tokens[slot] = self._ids(bad)
        longer: defaultdict[int, list[list[int]]] = defaultdict(list)
        for word in sequence.request.bad_words:
            if len(word) > 1:
                longer[word[-2]].append(list(word))
        if longer:
            self._bad_words[slot] = longer
        special = (
            _penalized(params)
            or params.logprobs is not None
            or sequence.guide is not None
            or bool(sequence.processors)
            or any(
                slot in kept
                for kept in (self._bias, self._ends, self._allowed, self._bad_tokens, self._bad_words)
            )
        )
        _mark(self._special, slot, special)

    def _ids(self, tokens: Iterable[int]) -> Tensor:
        return indices(sorted(tokens), self.device)

    def update_blocks(self, sequences: Iterable[Sequence]) -> None:
        """Copy the parts of the block tables that changed since the last step."""
        changed = [s for s in sequences if s.table.changed_from < len(s.table.blocks)]
        if not changed:
            return
        tables = [(s.slot, s.table) for s in changed]
        write_rows(self.blocks, [(slot, t.changed_from, t.blocks[t.changed_from :]) for slot, t in tables])
        for _, table in tables:
            table.changed_from = len(table.blocks)

    @property
    def parameters(self) -> Parameters:
        return self._parameters

    def has_special(self, slots: Iterable[int]) -> bool:
        """Whether one of them wants more of a draw than temperature, top-k, top-p and min-p."""
        return not self._special.isdisjoint(slots)

    def sampling_batch(self, sequences: list[Sequence], positions: list[int]) -> SamplingBatch:
        """What the sampler needs to draw these sequences' tokens at these positions, one row each."""
        slots = [s.slot for s in sequences]
        batch = SamplingBatch(self._parameters, slots, positions)
        if self.has_special(slots):
            self._add_special(batch, sequences)
        return batch

    def append(self, batch: SamplingBatch, tokens: Tensor) -> None:
        """Put each row's new token where the next step finds it.

        That step may be launched before the host knows that one could not be drawn: 0 stands for it, so that
        whoever indexes with tokens finds none below 0, and what comes of it is thrown away.
        """
        if self._host_tokens is None:
            slots, positions = indices(batch.slots, self.device), indices(batch.positions, self.device)
            self.tokens[slots, positions] = tokens.clamp(min=0).to(torch.int32)
            return
        for slot, position, token in zip(batch.slots, batch.positions, tokens.tolist(), strict=True):
            self._host_tokens[slot, position] = token if token > 0 else 0

    def _add_special(self, batch: SamplingBatch, sequences: list[Sequence]) -> None:
        penalized: list[int] = []
        for row, sequence in enumerate(sequences):
            if sequence.slot not in self._special:
                continue
            params = sequence.request.params
            if _penalized(params):
                penalized.append(row)
            if sequence.slot in self._bias:
                batch.biases.append((row, *self._bias[sequence.slot]))
            self._restrict(batch, row, sequence, batch.positions[row] - sequence.prompt_len)
            if params.logprobs is not None:
                batch.logprob_rows.append(row)
                batch.num_top = max(batch.num_top, params.logprobs)
        if penalized:
            batch.penalties = self._penalties(batch, penalized)

    def _penalties(self, batch: SamplingBatch, rows: list[int]) -> Penalties:
        slots = indices([batch.slots[row] for row in rows], self.device)
        lengths = [batch.positions[row] for row in rows]
        return Penalties(
            rows=rows,
            tokens=self.tokens[slots, : max(lengths)],
            lengths=indices(lengths, self.device),
            prompt_lengths=self._ints[_PROMPT, slots],
            repetition=self._floats[_REPETITION, slots],
            presence=self._floats[_PRESENCE, slots],
            frequency=self._floats[_FREQUENCY, slots],
        )

    def _restrict(self, batch: SamplingBatch, row: int, sequence: Sequence, num_output: int) -> None:
        """Say what may not come next, or what alone may."""
        slot = sequence.slot
        if num_output < sequence.request.params.min_tokens and slot in self._ends:
            batch.bans.append((row, self._ends[slot]))
        if slot in self._allowed:
            batch.allowed.append((row, self._allowed[slot]))
        if sequence.guide is not None:
            batch.allowed.append((row, self._ids(sequence.guide.allowed(sequence.output))))
        if slot in self._bad_tokens:
            batch.bans.append((row, self._bad_tokens[slot]))
        if slot in self._bad_words:
            near = self._bad_words[slot].get(sequence.tokens[-1], ())
            last = {word[-1] for word in near if _lacks_only_its_last(word, sequence)}
            if last:
                batch.bans.append((row, self._ids(last)))
        if sequence.processors:
            batch.processors.append((row, partial(_processed, sequence)))


def _mark(slots: set[int], slot: int, wanted: bool) -> None:
    if wanted:
        slots.add(slot)
    else:
        slots.discard(slot)


def _penalized(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0


def _lacks_only_its_last(word: list[int], sequence: Sequence) -> bool:
    """Whether the output, not the prompt, ends with all of a bad word but its last token."""
    start = len(sequence.tokens) - (len(word) - 1)
    return start >= sequence.prompt_len and sequence.tokens[start:] == word[:-1]


def _processed(sequence: Sequence, logits: Tensor) -> Tensor:
    for processor in sequence.processors:
        logits = processor(list(sequence.request.prompt), sequence.output, logits)
    return logits
