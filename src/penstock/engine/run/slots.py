"""Permanent places on the device, one for each running sequence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor

from penstock.engine.layers.noise import choice_seed
from penstock.engine.layers.sampler import Penalties, SamplingBatch
from penstock.engine.schedule.sequence import Sequence

_TEMPERATURE, _TOP_P, _MIN_P, _REPETITION, _PRESENCE, _FREQUENCY = range(6)
_SEED, _TOP_K, _PROMPT = range(3)


class Slots:
    """Tokens, block numbers and sampling parameters by slot.

    A sampled token is written here by the device itself, so that the next step's inputs need
    nothing from the host but which slots take part.
    """

    def __init__(self, count: int, max_len: int, max_blocks: int, device: torch.device) -> None:
        self.device = device
        self.tokens = torch.zeros((count, max_len + 1), dtype=torch.int32, device=device)
        self.blocks = torch.zeros((count, max_blocks), dtype=torch.int32, device=device)
        self._floats = torch.zeros((count, 6), dtype=torch.float32, device=device)
        self._ints = torch.zeros((count, 3), dtype=torch.int64, device=device)
        self._bias: dict[int, tuple[Tensor, Tensor]] = {}
        self._ends: dict[int, Tensor] = {}  # ids banned before min_tokens
        self._allowed: dict[int, Tensor] = {}
        self._bad_tokens: dict[int, Tensor] = {}  # bad words of one token
        # Longer ones by the token before their last, so that a step looks only at those it could complete.
        self._bad_words: dict[int, dict[int, list[list[int]]]] = {}

    def load(self, sequence: Sequence) -> None:
        """Set a slot up for a sequence that has just been given it."""
        slot, params = sequence.slot, sequence.request.params
        self.tokens[slot, : len(sequence.tokens)] = torch.tensor(sequence.tokens, dtype=torch.int32)
        self._floats[slot] = torch.tensor(
            [
                params.temperature,
                params.top_p,
                params.min_p,
                # Beyond these a float32 logit would become infinite, or zero by zero.
                min(max(params.repetition_penalty, 1e-6), 1e6),
                params.presence_penalty,
                params.frequency_penalty,
            ]
        )
        assert params.seed is not None, "the core draws a seed before it submits"
        seed = choice_seed(params.seed, sequence.index)
        self._ints[slot] = torch.tensor([seed, max(params.top_k, 0), sequence.prompt_len])
        for kept in (self._bias, self._ends, self._allowed, self._bad_tokens, self._bad_words):
            kept.pop(slot, None)
        if params.logit_bias:
            tokens, biases = zip(*sorted(params.logit_bias.items()), strict=True)
            self._bias[slot] = self._ids(tokens), torch.tensor(biases, device=self.device)
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

    def _ids(self, tokens: Iterable[int]) -> Tensor:
        return torch.tensor(sorted(tokens), dtype=torch.int64, device=self.device)

    def update_blocks(self, sequence: Sequence) -> None:
        """Copy the part of the block table that changed since the last step."""
        table = sequence.table
        start = table.changed_from
        if start < len(table.blocks):
            changed = torch.tensor(table.blocks[start:], dtype=torch.int32)
            self.blocks[sequence.slot, start : len(table.blocks)] = changed
            table.changed_from = len(table.blocks)

    def sampling_batch(self, sequences: list[Sequence]) -> SamplingBatch:
        """What the sampler needs for these sequences, one row each."""
        slots = torch.tensor([s.slot for s in sequences], device=self.device)
        floats, ints = self._floats[slots], self._ints[slots]
        batch = SamplingBatch(
            temperature=floats[:, _TEMPERATURE],
            top_k=ints[:, _TOP_K],
            top_p=floats[:, _TOP_P],
            min_p=floats[:, _MIN_P],
            seeds=ints[:, _SEED],
            positions=torch.tensor([len(s.tokens) for s in sequences], device=self.device),
        )
        penalized: list[int] = []
        for row, sequence in enumerate(sequences):
            params = sequence.request.params
            if params.temperature > 0:
                batch.random_rows.append(row)
                batch.filtered |= params.top_k > 0 or params.top_p < 1 or params.min_p > 0
            if params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty:
                penalized.append(row)
            if sequence.slot in self._bias:
                batch.biases.append((row, *self._bias[sequence.slot]))
            self._restrict(batch, row, sequence)
            if params.logprobs is not None:
                batch.logprob_rows.append(row)
                batch.num_top = max(batch.num_top, params.logprobs)
        if penalized:
            longest = max(len(sequences[row].tokens) for row in penalized)
            batch.penalties = Penalties(
                rows=penalized,
                tokens=self.tokens[slots[penalized], :longest],
                lengths=batch.positions[penalized],
                prompt_lengths=ints[penalized, _PROMPT],
                repetition=floats[penalized, _REPETITION],
                presence=floats[penalized, _PRESENCE],
                frequency=floats[penalized, _FREQUENCY],
            )
        return batch

    def _restrict(self, batch: SamplingBatch, row: int, sequence: Sequence) -> None:
        """Say what may not come next, or what alone may."""
        slot = sequence.slot
        if sequence.num_output < sequence.request.params.min_tokens and slot in self._ends:
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


def _lacks_only_its_last(word: list[int], sequence: Sequence) -> bool:
    """Whether the output, not the prompt, ends with all of a bad word but its last token."""
    start = len(sequence.tokens) - (len(word) - 1)
    return start >= sequence.prompt_len and sequence.tokens[start:] == word[:-1]


def _processed(sequence: Sequence, logits: Tensor) -> Tensor:
    for processor in sequence.processors:
        logits = processor(list(sequence.request.prompt), sequence.output, logits)
    return logits
