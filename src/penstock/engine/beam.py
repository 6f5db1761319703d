"""Beam search, decided purely: given the likeliest next tokens of every live beam, what to look at next.

The model's part is ordinary requests for one token with log-probabilities. A beam's next request repeats
all tokens before it, which the prefix cache holds: a round computes a token and a partial block of each beam.

The rules are those of transformers' `generate(num_beams=...)`, so that answers can be compared:

- All continuations of all live beams are ranked together by the sum of their log-probabilities.
- An end token finishes its hypothesis only among the best `beam_width` of them; the best `beam_width` of the
  others live on. At `max_tokens` whatever is among the best is finished.
- A hypothesis is worth sum / length ** length_penalty, its end token counted.
- It is over when `beam_width` hypotheses are finished and no live beam looks better than the worst of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.engine.request import (
    MAX_COUNT,
    MAX_LOGPROBS,
    Request,
    SamplingParams,
    TokenEvent,
)
from penstock.errors import InvalidRequestError

MAX_BEAM_WIDTH = 64
MAX_LENGTH_PENALTY = 10.0

# True: stop at the first `beam_width` hypotheses. False: compare with live beams as long as they are now.
# "never": as long as they can become, which searches on where a length penalty above 0 might still pay.
EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams:
    """How to search for the likeliest answer."""

    beam_width: int = 4
    n: int | None = None  # hypotheses to return, the best first; None: all
    max_tokens: int | None = None  # None: until the context is full
    length_penalty: float = 1.0  # above 0 favours long hypotheses, below 0 short ones
    early_stopping: EarlyStopping = False
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        _within("beam_width", self.beam_width, 1, MAX_BEAM_WIDTH)
        if self.n is not None:
            _within("n", self.n, 1, self.beam_width)
        if self.max_tokens is not None:
            _within("max_tokens", self.max_tokens, 1, MAX_COUNT)
        penalty = self.length_penalty
        if isinstance(penalty, bool) or not isinstance(penalty, int | float):
            raise InvalidRequestError(
                f"length_penalty must be a number, got {penalty!r}.", param="length_penalty"
            )
        if not abs(penalty) <= MAX_LENGTH_PENALTY:
            raise InvalidRequestError(
                f"length_penalty must be between {-MAX_LENGTH_PENALTY:g} and {MAX_LENGTH_PENALTY:g}, "
                f"got {penalty:g}.",
                param="length_penalty",
            )
        if self.early_stopping not in (True, False, "never"):
            raise InvalidRequestError(
                f"early_stopping must be true, false or 'never', got {self.early_stopping!r}.",
                param="early_stopping",
            )

    @property
    def num_returned(self) -> int:
        return self.beam_width if self.n is None else self.n

    def sampling(self) -> SamplingParams:
        """What of it decides how the text of a hypothesis is shown."""
        return SamplingParams(
            n=self.num_returned,
            max_tokens=self.max_tokens,
            temperature=0.0,
            stop_token_ids=self.stop_token_ids,
            ignore_eos=self.ignore_eos,
            include_stop_str_in_output=self.include_stop_str_in_output,
            skip_special_tokens=self.skip_special_tokens,
        )


@dataclass(frozen=True, slots=True)
class Beam:
    """Tokens behind the prompt, and the sum of their log-probabilities."""

    tokens: tuple[int, ...]
    logprob: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    tokens: tuple[int, ...]  # the end token included
    logprob: float
    score: float
    end: int | None  # the token that ended it; None: it is as long as it may be


class BeamSearch:
    """Advanced round by round until `done`; `finished` has the best hypotheses so far, the best first."""

    def __init__(self, params: BeamSearchParams, ends: Iterable[int], max_tokens: int) -> None:
        self.live = [Beam((), 0.0)]
        self.finished: list[Hypothesis] = []
        self.done = False
        self._params = params
        self._ends = frozenset(ends)
        self._max_tokens = max_tokens
        if self.num_candidates > MAX_LOGPROBS:
            raise InvalidRequestError(
                f"A beam search of width {params.beam_width} with {len(self._ends)} end tokens must compare "
                f"{self.num_candidates} continuations of each beam; at most {MAX_LOGPROBS} can be had. "
                "Ask for fewer beams or stop_token_ids.",
                param="stop_token_ids",
            )

    @property
    def num_candidates(self) -> int:
        """How many of a beam's likeliest next tokens are enough: all ends may be among them."""
        return self._params.beam_width + len(self._ends)

    def advance(self, candidates: Sequence[Iterable[tuple[int, float]]]) -> None:
        """Take (token, log-probability) pairs of every live beam: its `num_candidates` likeliest or more."""
        width = self._params.beam_width
        length = len(self.live[0].tokens) + 1
        ranked = [
            (beam.logprob + logprob, beam, token)
            for beam, continuations in zip(self.live, candidates, strict=True)
            for token, logprob in continuations
            if logprob > -math.inf
        ]
        ranked.sort(key=lambda entry: -entry[0])
        going: list[Beam] = []
        for place, (logprob, beam, token) in enumerate(ranked):
            tokens = (*beam.tokens, token)
            if token in self._ends or length >= self._max_tokens:
                if place < width:
                    self._finish(tokens, logprob)
            elif len(going) < width:
                going.append(Beam(tokens, logprob))
            elif place >= width:
                break
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)
        del self.finished[width:]
        self.live = going
        self.done = not going or self._over(length)

    def best(self) -> list[Hypothesis]:
        return self.finished[: self._params.num_returned]

    def _finish(self, tokens: tuple[int, ...], logprob: float) -> None:
        score = self._score(logprob, len(tokens))
        end = tokens[-1] if tokens[-1] in self._ends else None
        self.finished.append(Hypothesis(tokens, logprob, score, end))

    def _over(self, length: int) -> bool:
        if len(self.finished) < self._params.beam_width:
            return False
        if self._params.early_stopping is True:
            return True
        longest = self._params.early_stopping == "never" and self._params.length_penalty > 0
        hoped = self._score(self.live[0].logprob, self._max_tokens if longest else length)
        return hoped <= self.finished[-1].score

    def _score(self, logprob: float, length: int) -> float:
        return float(logprob / length**self._params.length_penalty)


class BeamRequest:
    """A request answered by beam search: which requests to send in each round, and the events at the end.

    Whoever drives it sends `round()`, gives the events that come back to `take`, and repeats until `done`.
    """

    def __init__(self, request: Request, params: BeamSearchParams, context: int) -> None:
        ends = set(params.stop_token_ids) | (set() if params.ignore_eos else set(request.eos_token_ids))
        room = context - len(request.prompt)  # none: the engine refuses the first round
        self.request = request
        limit = room if params.max_tokens is None else min(params.max_tokens, room)
        self.search = BeamSearch(params, ends, limit)
        self._num_returned = params.num_returned
        self._cached_tokens = 0  # of the prompt
        self._scheduled = 0.0
        self._preemptions = 0
        self._rounds = 0
        # More than a small vocabulary has is no error: the engine gives what there is.
        self._params = SamplingParams(max_tokens=1, temperature=0.0, logprobs=self.search.num_candidates)

    @property
    def done(self) -> bool:
        return self.search.done

    def round(self) -> list[Request]:
        """One request for each live beam."""
        self._rounds += 1
        request = self.request
        return [
            Request(
                id=f"{request.id}-{self._rounds}-{number}",
                prompt=[*request.prompt, *beam.tokens],
                params=self._params,
                priority=request.priority,
                salt=request.salt,
            )
            for number, beam in enumerate(self.search.live)
        ]

    def take(self, events: Sequence[TokenEvent]) -> None:
        """The events of the round's requests, in their order, each with the scores of one token."""
        if self._rounds == 1:
            self._cached_tokens, self._scheduled = events[0].cached_tokens, events[0].scheduled
        self._preemptions += sum(event.preemptions for event in events)
        scores = [event.logprobs[0] for event in events]
        self.search.advance([zip(each.top_ids, each.top, strict=True) for each in scores])

    def events(self) -> list[TokenEvent]:
        """The best hypotheses as whole choices; every choice ends, even if a tiny vocabulary has too few."""
        best = self.search.best()
        events = [
            TokenEvent(
                request_id=self.request.id,
                index=index,
                token_ids=list(hypothesis.tokens),
                finish_reason="length" if hypothesis.end is None else "stop",
                stop_token=hypothesis.end,
                cached_tokens=self._cached_tokens,
                scheduled=self._scheduled,
                # Of all beams together, whichever of them became the answers: told once.
                preemptions=0 if index else self._preemptions,
            )
            for index, hypothesis in enumerate(best)
        ]
        reason = f"The beam search found only {len(best)} different answers; ask for fewer."
        return events + self.failed(reason, invalid=True)[len(best) :]

    def failed(self, reason: str | None, *, invalid: bool) -> list[TokenEvent]:
        """The events when the engine gave up on one of the beams."""
        return [
            TokenEvent(
                request_id=self.request.id, index=index, finish_reason="error", error=reason, invalid=invalid
            )
            for index in range(self._num_returned)
        ]


def _within(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidRequestError(
            f"{name} must be an integer between {low} and {high}, got {value!r}.", param=name
        )
