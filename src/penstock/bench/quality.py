"""What a precision costs: a text's perplexity against another precision's, token by token.

The text is cut into pieces, each read with nothing before it, through `prompt_logprobs`: the same steps
that serve requests. Both precisions read the same pieces, so their differences are paired.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.aio.evaluate.intervals import figure
from penstock.engine.request import Request, SamplingParams, TokenEvent, TokenLogprobs
from penstock.errors import ConfigError, PenstockError

TOP = 20  # likeliest tokens looked at in each place, for the divergence
IN_FLIGHT = 4  # pieces the engine has at once; more would only wait
_LEAST = 1e-9  # probability that is left to all other tokens, whatever rounding says

Piece = list[TokenLogprobs]  # of each token of a piece, from its second on


class Engine(Protocol):
    """What is driven: `engine.core.EngineCore`."""

    @property
    def has_work(self) -> bool: ...
    def submit(self, request: Request) -> None: ...
    def step(self) -> Sequence[TokenEvent]: ...


@dataclass(slots=True)
class Reading:
    """One precision's log-probabilities of the text."""

    precision: str
    pieces: dict[int, Piece] = field(default_factory=dict)  # by number, those that were read to the end
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def tokens(self) -> int:
        return sum(map(len, self.pieces.values()))

    def perplexity(self, among: Sequence[int]) -> float:
        """Of the pieces with these numbers."""
        tokens = [token for number in among for token in self.pieces[number]]
        return math.exp(-math.fsum(token.chosen for token in tokens) / len(tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How much worse the chosen precision is than the one it is compared with."""

    tokens: int  # that were scored
    pieces: int
    perplexity: float
    reference_perplexity: float
    difference: float  # of the perplexities, relative: 0.01 is one percent worse
    low: float | None  # its 95% interval, paired over pieces; None with a single piece
    high: float | None
    absolute_difference: float  # of a token's log-probabilities, the mean, in nats
    agreement: float  # share of places whose likeliest token is the same
    divergence: float  # nats per token, Kullback-Leibler; a lower bound, see `_divergence`


def cut(ids: Sequence[int], context: int, first: Sequence[int] = ()) -> list[list[int]]:
    """Pieces of nearly equal length, at most `context` tokens each; all begin with `first`."""
    if len(ids) < 2:
        raise ConfigError(f"The text has {len(ids)} tokens; give one of at least two, better of thousands.")
    if context < len(first) + 2:
        raise ConfigError(f"context must be at least {len(first) + 2} tokens, got {context}.")
    # No piece of a single token, which would have nothing to score.
    count = min(math.ceil(len(ids) / (context - len(first))), len(ids) // 2)
    bounds = [len(ids) * number // count for number in range(count + 1)]
    return [[*first, *ids[start:end]] for start, end in itertools.pairwise(bounds)]


def read(
    engine: Engine,
    precision: str,
    pieces: Sequence[Sequence[int]],
    progress: Callable[[int], None] = lambda tokens: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Reading:
    """Read every piece; Ctrl-C ends it with what was read so far. `progress` hears of tokens read."""
    reading = Reading(precision)
    began = clock()
    try:
        for number, piece in _read(engine, pieces):
            reading.pieces[number] = piece
            progress(len(pieces[number]))
    except KeyboardInterrupt:
        reading.interrupted = True
    reading.seconds = clock() - began
    return reading


def _read(engine: Engine, pieces: Sequence[Sequence[int]]) -> Iterator[tuple[int, Piece]]:
    """Each piece's number and log-probabilities, as they are ready."""
    params = SamplingParams(max_tokens=0, temperature=0.0, prompt_logprobs=TOP)
    waiting = list(enumerate(pieces))[::-1]
    running = 0
    while waiting or running:
        while waiting and running < IN_FLIGHT:
            number, prompt = waiting.pop()
            engine.submit(Request(id=str(number), prompt=list(prompt), params=params))
            running += 1
        for event in engine.step():
            if event.error is not None:
                raise PenstockError(f"The engine could not read the text: {event.error}")
            if event.finish_reason is not None:
                running -= 1
                if not all(math.isfinite(token.chosen) for token in event.prompt_logprobs):
                    raise PenstockError("The engine gave a log-probability that is no finite number.")
                yield int(event.request_id), event.prompt_logprobs


def compare(chosen: Reading, reference: Reading) -> Quality | None:
    """Over the pieces that both have read; None if there are none."""
    shared = sorted(chosen.pieces.keys() & reference.pieces.keys())
    if not shared:
        return None
    differences: list[float] = []  # the mean of each piece, in nats; above 0 is worse
    absolute: list[float] = []
    divergences: list[float] = []
    same = 0
    for number in shared:
        pairs = list(zip(chosen.pieces[number], reference.pieces[number], strict=True))
        gaps = [theirs.chosen - ours.chosen for ours, theirs in pairs]
        differences.append(math.fsum(gaps) / len(gaps))
        absolute += map(abs, gaps)
        divergences += [_divergence(ours, theirs) for ours, theirs in pairs]
        same += sum(ours.top_ids[0] == theirs.top_ids[0] for ours, theirs in pairs)
    perplexity, reference_perplexity = chosen.perplexity(shared), reference.perplexity(shared)
    interval = figure(differences, len(differences))
    bounds = (None, None) if interval is None else (interval.low, interval.high)
    low, high = (None if bound is None else math.expm1(bound) for bound in bounds)
    return Quality(
        tokens=len(absolute),
        pieces=len(shared),
        perplexity=perplexity,
        reference_perplexity=reference_perplexity,
        difference=perplexity / reference_perplexity - 1,
        low=low,
        high=high,
        absolute_difference=math.fsum(absolute) / len(absolute),
        agreement=same / len(absolute),
        divergence=math.fsum(divergences) / len(divergences),
    )


def _divergence(ours: TokenLogprobs, theirs: TokenLogprobs) -> float:
    """Of our distribution from theirs, over the tokens likely in both and all others taken as one.

    Taking tokens together can only hide differences, so the true divergence is at least this.
    """
    known = dict(zip(ours.top_ids, ours.top, strict=True))
    total, our_rest, their_rest = 0.0, 1.0, 1.0
    for token, logprob in zip(theirs.top_ids, theirs.top, strict=True):
        if token in known:
            total += math.exp(logprob) * (logprob - known[token])
            our_rest -= math.exp(known[token])
            their_rest -= math.exp(logprob)
    our_rest, their_rest = max(our_rest, _LEAST), max(their_rest, _LEAST)
    return total + their_rest * math.log(their_rest / our_rest)
