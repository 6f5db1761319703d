"""From logits to tokens: penalties, bias, bans, processors, temperature, top-k, top-p, min-p, the draw.

Each row's result depends on that row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from penstock.engine.layers.noise import exponential_noise
from penstock.engine.transfer import upload

# How many of the likeliest tokens top-p looks at before it resorts to sorting the vocabulary.
TOP_P_CANDIDATES = 512
# Instead of a token:
NO_TOKEN = -1  # the row's logits were not numbers
ALL_BANNED = -2  # no token of the vocabulary was left to choose


@dataclass(slots=True)
class Penalties:
    """Rows that pay for repetition. `tokens` holds each one's prompt and output, `lengths` how many."""

    rows: list[int]  # of the logits, p of them
    tokens: Tensor  # [p, longest] token ids, rubbish beyond the length
    lengths: Tensor  # [p]
    prompt_lengths: Tensor  # [p]
    repetition: Tensor  # [p] over prompt and output
    presence: Tensor  # [p] over output
    frequency: Tensor  # [p] over output


@dataclass(slots=True)
class Parameters:
    """What every slot's sequence asked for. It stays where it is: a step only names slots."""

    temperature: Tensor  # 0: greedy; else not so small that a quotient would not be a number
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seeds: Tensor
    # For the host, which should not wait for a device to tell.
    random: set[int]  # slots of temperature above 0
    filtered: set[int]  # of those, slots that use top-k, top-p or min-p


@dataclass(slots=True)
class SamplingBatch:
    """A slot and a position for each row of the logits; the rest names only the rows that need the thing."""

    parameters: Parameters
    slots: list[int]
    positions: list[int]  # of the tokens to be drawn
    penalties: Penalties | None = None
    biases: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)  # row, ids, values
    allowed: list[tuple[int, Tensor]] = field(default_factory=list)  # row, ids: nothing else may come
    bans: list[tuple[int, Tensor]] = field(default_factory=list)  # row, ids
    processors: list[tuple[int, Callable[[Tensor], Tensor]]] = field(default_factory=list)
    logprob_rows: list[int] = field(default_factory=list)
    num_top: int = 0  # most alternatives any row wants

    @property
    def changed_rows(self) -> list[int]:
        """Whose logits are not drawn from as the model gave them."""
        if not (self.penalties or self.biases or self.allowed or self.bans or self.processors):
            return []
        penalized = [] if self.penalties is None else self.penalties.rows
        named = (self.biases, self.allowed, self.bans, self.processors)
        return sorted({*penalized, *(row for part in named for row, *_ in part)})


@dataclass(slots=True)
class Logprobs:
    chosen: Tensor  # [rows]
    rank: Tensor  # [rows] of the chosen token, 1 for the likeliest
    top_ids: Tensor  # [rows, num_top]
    top: Tensor


@dataclass(slots=True)
class Sampled:
    tokens: Tensor  # [rows] int64; negative where there is none
    logprobs: Logprobs | None = None  # of the rows that want them
    failures: dict[int, Exception] = field(default_factory=dict)  # row -> what its processor raised


class Drawer(Protocol):
    """The work on whole vocabularies. Each row's result depends on that row alone."""

    def draw(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """[rows] int64, until the next call: a token for each row, or NO_TOKEN where the largest logit is
        not a finite number."""

    def logprobs(self, logits: Tensor, tokens: Tensor, num_top: int) -> Logprobs:
        """Of one token for each row, and of the likeliest ones."""


class TorchDrawer:
    """On any device; what a drawer means is defined here."""

    def draw(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        tokens = logits.argmax(dim=-1)
        rows = [row for row, slot in enumerate(batch.slots) if slot in batch.parameters.random]
        if rows:
            places = indices(rows, logits.device)
            tokens[places] = _draw(logits[places], rows, batch)
        return tokens.masked_fill_(~torch.isfinite(logits.amax(dim=-1)), NO_TOKEN)

    def logprobs(self, logits: Tensor, tokens: Tensor, num_top: int) -> Logprobs:
        raw = torch.log_softmax(logits, dim=-1)
        chosen = raw.gather(1, tokens.unsqueeze(1))
        top, top_ids = raw.topk(min(num_top, raw.shape[1]), dim=-1)
        return Logprobs(chosen.squeeze(1), (raw > chosen).sum(dim=-1) + 1, top_ids, top)


_TORCH = TorchDrawer()


def sample(logits: Tensor, batch: SamplingBatch, drawer: Drawer = _TORCH) -> Sampled:
    """logits: [rows, vocabulary], in float32 where a row is changed or asked about; changed in place."""
    changed, asking = batch.changed_rows, batch.logprob_rows
    # The draw finds broken rows itself, unless a change hides what is wrong with them.
    changed_at = broken = asking_at = raw = None
    if changed:
        changed_at = indices(changed, logits.device)
        broken = ~torch.isfinite(logits[changed_at].amax(dim=-1))
    if asking:
        asking_at = indices(asking, logits.device)
        raw = None if set(changed).isdisjoint(asking) else logits[asking_at]
    if batch.penalties is not None:
        _penalize(logits, batch.penalties)
    for row, ids, values in batch.biases:
        logits[row, ids] += values
    for row, ids in batch.allowed:
        kept = logits[row, ids]
        logits[row] = float("-inf")
        logits[row, ids] = kept
    for row, ids in batch.bans:
        logits[row].index_fill_(0, ids, float("-inf"))  # an assignment would wait for the device
    failures = _process(logits, batch)
    tokens = drawer.draw(logits, batch)
    result = Sampled(tokens, failures=failures)
    if asking_at is not None:
        if raw is None:
            raw = logits if len(asking) == len(logits) else logits[asking_at]
        result.logprobs = drawer.logprobs(raw, tokens[asking_at].clamp_(min=0), batch.num_top)
    if changed_at is not None and broken is not None:
        banned = logits[changed_at].amax(dim=-1) == float("-inf")
        found = tokens[changed_at].masked_fill_(banned, ALL_BANNED)
        tokens[changed_at] = found.masked_fill_(broken, NO_TOKEN)
    if failures:
        tokens.index_fill_(0, indices(list(failures), logits.device), NO_TOKEN)
    return result


def _process(logits: Tensor, batch: SamplingBatch) -> dict[int, Exception]:
    """Let users' own functions change their rows; one that fails harms its own row alone."""
    failures: dict[int, Exception] = {}
    for row, process in batch.processors:
        try:
            processed = process(logits[row].clone())
            if processed.shape != logits[row].shape:
                raise ValueError(f"it gave logits of shape {list(processed.shape)}")
            # Minus infinity forbids a token; whatever is not a number, or beyond all, is a mistake.
            if not (processed < float("inf")).all():
                raise ValueError("it gave logits that are not numbers, or infinite")
            logits[row] = processed
        except Exception as error:
            failures[row] = error
            logits[row] = 0.0
    return failures


def _penalize(logits: Tensor, penalties: Penalties) -> None:
    rows, vocab = indices(penalties.rows, logits.device), logits.shape[1]
    place = torch.arange(penalties.tokens.shape[1], device=logits.device)
    known = place < penalties.lengths[:, None]
    output = known & (place >= penalties.prompt_lengths[:, None])
    seen = _counts(penalties.tokens, known, vocab) > 0
    counts = _counts(penalties.tokens, output, vocab)
    picked = logits[rows]
    repetition = penalties.repetition[:, None]
    picked = torch.where(seen, torch.where(picked > 0, picked / repetition, picked * repetition), picked)
    picked -= penalties.frequency[:, None] * counts
    picked -= penalties.presence[:, None] * (counts > 0)
    logits[rows] = picked


def _counts(tokens: Tensor, mask: Tensor, vocab: int) -> Tensor:
    """How often each token occurs where the mask is true; [rows, vocabulary]."""
    counts = torch.zeros((tokens.shape[0], vocab), dtype=torch.float32, device=tokens.device)
    ids = torch.where(mask, tokens, 0).long()
    return counts.scatter_add_(1, ids, mask.float())


def _draw(scaled: Tensor, rows: list[int], batch: SamplingBatch) -> Tensor:
    """scaled: [rows, vocabulary] their logits, which are spent."""
    parameters, slots = batch.parameters, [batch.slots[row] for row in rows]
    filtered = not parameters.filtered.isdisjoint(slots)
    places = indices(slots, scaled.device)
    # The likeliest token is put at 0, so that no temperature, however small, makes it infinite.
    scaled = (scaled - scaled.amax(dim=-1, keepdim=True)) / parameters.temperature[places, None]
    if filtered:
        _filter(scaled, parameters.top_k[places], parameters.top_p[places], parameters.min_p[places])
    # argmax of p / noise, in logarithms.
    positions = indices([batch.positions[row] for row in rows], scaled.device)
    noise = exponential_noise(parameters.seeds[places], positions, scaled.shape[1])
    return scaled.sub_(noise.log_()).argmax(dim=-1)


def indices(numbers: Sequence[int], device: torch.device) -> Tensor:
    """To index with: a list would be sent to the device anew each time, and waited for. By way of numpy:
    torch is slow at reading lists."""
    return upload(np.array(numbers, dtype=np.int64), device)


def _filter(scaled: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> None:
    """Put minus infinity where top-k, then top-p of what that leaves, then min-p cut off.

    Each row's best value is 0.
    """
    vocab = scaled.shape[1]
    with_k = (top_k > 0) & (top_k < vocab)
    if with_k.any():
        k = torch.where(with_k, top_k, vocab)
        widest = int(top_k[with_k].max())
        likeliest = scaled.topk(widest, dim=-1).values
        threshold = likeliest.gather(1, (k.clamp(max=widest) - 1).unsqueeze(1))
        scaled.masked_fill_((scaled < threshold) & with_k[:, None], float("-inf"))
    with_p = top_p < 1.0
    if with_p.any():
        _filter_top_p(scaled, torch.where(with_p, top_p, 2.0))
    if (min_p > 0).any():
        # In logarithms, where the best is 0; log(0) is minus infinity, which cuts off nothing.
        scaled.masked_fill_(scaled < min_p.log()[:, None], float("-inf"))


def _filter_top_p(scaled: Tensor, top_p: Tensor) -> None:
    """Keep the fewest likeliest tokens whose probability reaches top_p; a top_p above 1 keeps all."""
    # Not logsumexp: the sum of a single long row is shared out among threads, and rounds differently.
    logprobs = scaled.log_softmax(dim=-1)
    candidates = min(TOP_P_CANDIDATES, scaled.shape[1])
    values = logprobs.topk(candidates, dim=-1).values
    mass = values.exp().cumsum(dim=-1)
    if (mass[:, -1] < top_p.clamp(max=1.0)).any() and candidates < scaled.shape[1]:
        values = logprobs.sort(dim=-1, descending=True).values
        mass = values.exp().cumsum(dim=-1)
    # A token is needed while the mass before it falls short; the likeliest always is.
    needed = (mass < top_p[:, None]).sum(dim=-1).clamp(max=values.shape[1] - 1)
    threshold = values.gather(1, needed.unsqueeze(1))
    scaled.masked_fill_((logprobs < threshold) & (top_p <= 1.0)[:, None], float("-inf"))
